"""RabbitMQ, PostgreSQL and Redis crash in the middle of every operation: the short form."""

from __future__ import annotations

import time

import pytest

from tests.acceptance.conftest import FleetMaker
from tests.acceptance.fleet import Fleet
from tests.acceptance.outages import SERVICES, Outages
from tests.acceptance.private_services import PrivateServices
from tests.acceptance.staged import Staged
from tests.acceptance.trips import EVERY_KIND, define_rack

HOMES, LOST = ["alpha", "beta", "delta"], "gamma"


@pytest.fixture
def small_fleet(make_private_fleet: FleetMaker) -> Fleet:
    fleet = make_private_fleet((*HOMES, LOST), 1)
    define_rack(fleet, fleet.hosts)
    return fleet


def test_every_service_crashes_in_the_middle_of_every_operation(
    small_fleet: Fleet, private: PrivateServices
) -> None:
    staged = Staged(small_fleet, HOMES, LOST)
    staged.hold_in_the_middle()
    outages = Outages(small_fleet, private)
    for service in SERVICES:
        outages.crash(service, staged.kinds)
    up_at = time.monotonic()
    for host in small_fleet.hosts:
        small_fleet.members[f"compute-{host}"].thaw()
    staged.check_all_end(up_at, "a crash of every service")
    assert set(outages.met) == {(kind, name) for kind in EVERY_KIND for name in SERVICES}
