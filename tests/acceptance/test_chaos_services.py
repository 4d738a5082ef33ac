"""Broker, database and Redis crash under load: servers of the test's own (`make chaos`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from models.lifecycle import OperationState
from tests.acceptance.conftest import HOSTS
from tests.acceptance.fleet import TIMES, Fleet
from tests.acceptance.load import Load
from tests.acceptance.private_services import PrivateServices, private_services
from tests.acceptance.sending import SHARED
from tests.operations.audit import check_at_rest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateServices]:
    with private_services() as services:
        yield services


@pytest.fixture(scope="module")
def own_fleet(
    private: PrivateServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    fleet = Fleet(private.services, tmp_path_factory.mktemp("fleet"), TIMES)
    fleet.add("conductor", 2)
    fleet.add("scheduler", 2)
    for name in HOSTS:
        fleet.add_host(name)
    fleet.start()
    fleet.until_greeted()
    yield fleet
    fleet.close()


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
        recoveries[name] = max(recoveries.get(name, 0.0), time.monotonic() - up_at)
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
    """Case C08: letters wait in the outbox; nothing is answered twice afterwards."""
    load = Load(own_fleet, random.Random(12), builds=40, pause_s=0.05)
    sending = load.start()
    time.sleep(1.0)
    with private.blocked_broker():
        own_fleet.until(own_fleet.outbox, "letters to wait", timeout_s=30)
        time.sleep(12.0)
    sending.join()
    own_fleet.all_ended(load.operations, timeout_s=300)
    own_fleet.settle(timeout_s=120)
    load.check()
    check_at_rest(own_fleet)
