"""RabbitMQ, PostgreSQL and Redis crash in the middle of every operation: the short form."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest

from tests.acceptance.conftest import FleetMaker
from tests.acceptance.fleet import Fleet
from tests.acceptance.outages import Outages, go_together, travellers_of
from tests.acceptance.private_services import PrivateServices
from tests.acceptance.trips import BUILD, DELETE, TRIPS, Traveller, define_rack
from tests.operations.audit import check_at_any_time, check_at_rest

SERVICES = ("Redis", "PostgreSQL", "RabbitMQ")
EVERY_KIND = {leg.task for legs in TRIPS.values() for leg in [BUILD, *legs, DELETE]}
HOMES, LOST = ["alpha", "beta", "delta"], "gamma"


@pytest.fixture
def small_fleet(make_private_fleet: FleetMaker) -> Fleet:
    fleet = make_private_fleet((*HOMES, LOST), 1)
    define_rack(fleet, fleet.hosts)
    return fleet


def before_each_leg(fleet: Fleet) -> list[tuple[Traveller, int]]:
    """Return a traveller for every kind of operation, arrived where that is the next to ask."""
    stages = {
        f"{trip} {number}": (legs, number)
        for trip, legs in TRIPS.items()
        for number in range(1, len(legs) + 1)
    }
    stages |= {"build": ([], 0), "delete": ([], 1)}
    trips = {name: legs for name, (legs, _) in stages.items()}
    travellers = travellers_of(fleet, HOMES, LOST, trips)
    staged = [(t, number) for t, (_, number) in zip(travellers, stages.values(), strict=True)]
    for leg in range(max(number for _, number in staged)):
        go_together(fleet, [traveller for traveller, number in staged if leg < number], leg)
    return staged


def go_on_to_the_end(fleet: Fleet, staged: list[tuple[Traveller, int]]) -> None:
    """Let everybody take the legs that are left, and nobody twice."""
    for leg in range(1, max(len(traveller.legs) for traveller, _ in staged)):
        left = [t for t, number in staged if number < leg < len(t.legs)]
        go_together(fleet, left, leg)


def check_all_shown(fleet: Fleet, travellers: Iterable[Traveller]) -> None:
    """Whoever waits for a result of Celery's gets it, though Redis has lost all it held."""
    for id_ in itertools.chain.from_iterable(traveller.ids for traveller in travellers):
        shown = partial(fleet.sender.state, id_)
        fleet.until(lambda shown=shown: shown() == "SUCCESS", f"the result of {id_}", 30)


def check_done_once(travellers: Iterable[Traveller]) -> None:
    """Whoever took the same trip had the same done by the hypervisors, struck here or there."""
    effects: dict[tuple[str, ...], Counter[str]] = {}
    for traveller in travellers:
        trip = tuple(leg.task for leg in traveller.legs)
        assert effects.setdefault(trip, traveller.effects()) == traveller.effects(), trip


def test_every_service_crashes_in_the_middle_of_every_operation(
    small_fleet: Fleet, private: PrivateServices
) -> None:
    staged = before_each_leg(small_fleet)
    for traveller, number in staged:
        traveller.prepare(number)
    workers = [small_fleet.members[f"compute-{name}"] for name in small_fleet.hosts]
    for worker in workers:
        worker.freeze()
    for traveller, number in staged:
        traveller.ask(number)
    kinds = {t.ids[number]: t.legs[number].task for t, number in staged}
    outages = Outages(small_fleet, private)
    assert set(outages.wait_out(kinds, {})) == set(kinds)
    for service in SERVICES:
        outages.crash(service, kinds)
    up_at = time.monotonic()
    for worker in workers:
        worker.thaw()
    for traveller, number in staged:
        traveller.check(number, small_fleet.ended(traveller.ids[number]))
        check_at_any_time(small_fleet)
    small_fleet.figures.recovered(time.monotonic() - up_at, "a crash of every service")
    go_on_to_the_end(small_fleet, staged)
    small_fleet.settle()
    check_at_rest(small_fleet)
    travellers = [traveller for traveller, _ in staged]
    check_done_once(travellers)
    check_all_shown(small_fleet, travellers)
    assert set(outages.met) == {(kind, each) for kind in EVERY_KIND for each in SERVICES}
