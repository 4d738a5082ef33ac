"""One fleet for all tests of a run: starting its processes is most of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.acceptance.figures import Figures, told
from tests.acceptance.fleet import TIMES, Fleet, Services
from tests.acceptance.private_services import PrivateServices, private_services
from tests.acceptance.sending import instance_of
from tests.acceptance.stops import Moment
from tests.operations.audit import check_at_rest

HOSTS = ("alpha", "beta", "gamma", "delta", "epsilon")
WIRED = ("delta", "epsilon")
VERBS = ("stop", "start", "delete")
Journeys = dict[str, list[Moment]]
FleetMaker = Callable[..., Fleet]
_fleets: list[Fleet] = []
_figures: list[Figures] = []


@pytest.fixture(scope="session")
def make_fleet(
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[FleetMaker]:
    """Return a function that gives a fleet of its own vhost and database, without processes."""

    def make(**times: str) -> Fleet:
        services = Services(fresh_vhost(), fresh_database(), redis_url)
        fleet = Fleet(services, tmp_path_factory.mktemp("fleet"), {**TIMES, **times})
        watch(fleet)
        return fleet

    yield make
    for fleet in _fleets:
        fleet.close()
    _fleets.clear()


def watch(fleet: Fleet) -> None:
    """Show a fleet's logs beside every failure, and its figures at the end of the run."""
    _fleets.append(fleet)
    _figures.append(fleet.figures)


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateServices]:
    """Servers of one module's own, which it may crash."""
    with private_services() as services:
        yield services


@pytest.fixture(scope="module")
def make_private_fleet(
    private: PrivateServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FleetMaker]:
    """Return a function that starts a fleet on servers that may crash."""
    made: list[Fleet] = []

    def make(hosts: Sequence[str], count: int) -> Fleet:
        fleet = Fleet(private.services, tmp_path_factory.mktemp("fleet"), TIMES)
        watch(fleet)
        made.append(fleet)
        fleet.add("conductor", count)
        fleet.add("scheduler", count)
        for name in hosts:
            fleet.add_host(name)
        fleet.start()
        fleet.until_greeted()
        return fleet

    yield make
    for fleet in made:
        _fleets.remove(fleet)
        fleet.close()


@pytest.fixture(scope="session")
def shared_fleet(make_fleet: FleetMaker) -> Fleet:
    """Two conductors, two schedulers, and a compute worker for each of five hosts."""
    fleet = make_fleet()
    fleet.add("conductor", 2)
    fleet.add("scheduler", 2)
    for name in HOSTS:
        fleet.add_host(name, wired=name in WIRED)
    fleet.start()
    fleet.until_greeted()
    return fleet


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Iterator[Fleet]:
    """The shared fleet, whole and empty; audited at rest and emptied after the test."""
    yield shared_fleet
    try:
        shared_fleet.heal()
        shared_fleet.settle()
        check_at_rest(shared_fleet)
    finally:
        shared_fleet.clear()


@pytest.fixture
def journeys(fleet: Fleet) -> Journeys:
    """Where every transaction of each operation leads, as a life without faults shows."""
    build = fleet.sender.build()
    fleet.ended(build)
    found = {"build": fleet.stops.journey(build)}
    for verb in VERBS:
        operation = fleet.sender.ask(verb, instance_of(build))
        fleet.ended(operation)
        found[verb] = fleet.stops.journey(operation)
    return found


@pytest.fixture
def build_journey(fleet: Fleet) -> list[Moment]:
    """Where every transaction of a build leads, as one without faults shows."""
    build = fleet.sender.build()
    fleet.ended(build)
    return fleet.stops.journey(build)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """Show the end of every log beside a failure."""
    report = yield
    if report.failed:
        for fleet in _fleets:
            for member in fleet.members.values():
                report.sections.append((f"log of {member.name}", member.tail()))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what all the faults of the run came to."""
    for line in told(_figures):
        terminalreporter.write_line(f"acceptance: {line}")
