"""Broker, database and Redis crash under load: servers of the test's own (`make chaos`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from models.lifecycle import OperationState
from tests.acceptance.conftest import HOSTS, FleetMaker
from tests.acceptance.fleet import Fleet
from tests.acceptance.load import Load
from tests.acceptance.outages import SERVICES, Outages, fly
from tests.acceptance.private_services import PrivateServices
from tests.acceptance.sending import SHARED
from tests.acceptance.staged import check_all_shown
from tests.acceptance.trips import EVERY_KIND, define_rack, travellers_of
from tests.operations.audit import check_at_rest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def own_fleet(make_private_fleet: FleetMaker) -> Fleet:
    return make_private_fleet(HOSTS, 2)


def test_every_service_crashes_under_load(own_fleet: Fleet, private: PrivateServices) -> None:
    for host in own_fleet.hosts:
        own_fleet.restart(f"compute-{host}", "--habit", "latency_max_s=0.5")
    own_fleet.start()
    load = Load(own_fleet, random.Random(11), builds=150, pause_s=0.2)
    sending = load.start()
    recoveries: dict[str, float] = {}
    crashes: list[Callable[[], None]] = [
        private.crash_redis,
        private.crash_database,
        private.crash_broker,
    ]
    for crash in crashes * 2:
        time.sleep(2.0)
        crash()
        up_at = time.monotonic()
        probe = own_fleet.sender.build(SHARED)
        assert own_fleet.ended(probe, timeout_s=120).state is OperationState.SUCCEEDED
        name = crash.__name__
        recovery_s = time.monotonic() - up_at
        recoveries[name] = max(recoveries.get(name, 0.0), recovery_s)
        own_fleet.figures.faults[f"{name} under load"] += 1
        own_fleet.figures.recovered(recovery_s, f"{name} under load")
    sending.join()
    own_fleet.all_ended(load.operations, timeout_s=300)
    own_fleet.settle(timeout_s=120)
    load.check()
    check_at_rest(own_fleet)
    print(f"\n{len(load.operations)} operations; a build after each crash within {recoveries} s")
    assert all(member.alive for member in own_fleet.members.values())


def test_a_broker_that_takes_nothing_delays_and_loses_nothing(
    own_fleet: Fleet, private: PrivateServices
) -> None:
    """Messages wait in the outbox; nothing is answered twice afterwards."""
    load = Load(own_fleet, random.Random(12), builds=40, pause_s=0.05)
    conductors = [own_fleet.members[f"conductor-{number}"] for number in (1, 2)]
    for conductor in conductors:
        conductor.freeze()  # so that there is something to say once the broker is blocked
    load.start().join()
    own_fleet.figures.faults["broker blocked"] += 1
    with private.blocked_broker():
        for conductor in conductors:
            conductor.thaw()
        own_fleet.until(own_fleet.outbox, "messages to wait", timeout_s=30)
        time.sleep(12.0)
    own_fleet.all_ended(load.operations, timeout_s=300)
    own_fleet.settle(timeout_s=120)
    load.check()
    check_at_rest(own_fleet)


def test_services_crash_in_turn_at_every_ask_of_every_operation(
    own_fleet: Fleet, private: PrivateServices
) -> None:
    """Three flights of all trips side by side, each beginning with another of the services."""
    own_fleet.heal()
    own_fleet.clear()
    define_rack(own_fleet, HOSTS)
    calm = travellers_of(own_fleet, list(HOSTS[:-1]), HOSTS[-1])
    fly(own_fleet, calm)
    own_fleet.settle()
    once = [traveller.effects() for traveller in calm]
    for host in own_fleet.hosts:
        own_fleet.restart(f"compute-{host}", "--habit", "latency_s=1")
    own_fleet.start()
    outages = Outages(own_fleet, private)
    for first in range(len(SERVICES)):
        travellers = travellers_of(own_fleet, list(HOSTS[:-1]), HOSTS[-1])
        fly(own_fleet, travellers, outages, first)
        own_fleet.settle(timeout_s=120)
        check_at_rest(own_fleet)
        assert [traveller.effects() for traveller in travellers] == once
        check_all_shown(own_fleet, travellers)
    assert set(outages.met) == {(kind, service) for kind in EVERY_KIND for service in SERVICES}
    print(f"\n{outages.met.total()} operations met {own_fleet.figures.faults}")
    print(f"{len(outages.places)} places, as step and service")
    assert all(member.alive for member in own_fleet.members.values())
