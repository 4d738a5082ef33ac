"""Every other operation at every commit, before and after it, and at every ask (`make chaos`)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.acceptance.conftest import WIRED
from tests.acceptance.dying_workers import PLACES, DyingWorkers
from tests.acceptance.fleet import Fleet
from tests.acceptance.killing import Killer
from tests.acceptance.stops import Moment
from tests.acceptance.test_kills import check_shown
from tests.acceptance.trips import TRIPS, Leg, Traveller, define_rack
from tests.operations.audit import check_at_rest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]
OTHER_TRIPS = [trip for trip in TRIPS if trip != "stop and start"]  # those are in test_chaos.py


def travel(fleet: Fleet, killer: Killer, legs: list[Leg], fatal: dict[str, Moment]) -> list[str]:
    """Take a new instance on a trip, with a death in every leg for which one is given."""
    traveller = Traveller(fleet, legs)
    for number, leg in enumerate(traveller.legs):
        moment = fatal.get(leg.task)
        if moment is None:
            traveller.go(number)
            continue
        traveller.prepare(number)
        id_ = traveller.ids[number]
        traveller.check(number, killer.at(id_, moment, partial(traveller.ask, number)))
    return traveller.ids


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("trip", OTHER_TRIPS)
def test_a_death_at_every_commit_of_a_trip(fleet: Fleet, trip: str, committed: bool) -> None:
    legs = TRIPS[trip]
    define_rack(fleet, WIRED)
    killer = Killer(fleet, committed=committed)
    ids = travel(fleet, killer, legs, {})[1:-1]
    journeys = {leg.task: fleet.stops.journey(id_) for leg, id_ in zip(legs, ids, strict=True)}
    for place in range(max(map(len, journeys.values()))):
        fatal = {task: moments[place] for task, moments in journeys.items() if place < len(moments)}
        travel(fleet, killer, legs, fatal)
        fleet.settle()
        check_at_rest(fleet)
    check_shown(fleet, killer)
    print(f"\n{trip}: {killer.report()}")


@pytest.mark.parametrize("trip", OTHER_TRIPS)
def test_a_worker_dies_at_every_place_of_every_ask_of_a_trip(fleet: Fleet, trip: str) -> None:
    legs = TRIPS[trip]
    define_rack(fleet, WIRED)
    killer = Killer(fleet)
    calm = Traveller(fleet, legs, *WIRED)
    for number in range(len(calm.legs)):
        calm.go(number)
    fleet.settle()
    journeys = [fleet.stops.journey(id_) for id_ in calm.ids]
    for place in PLACES:
        dying = DyingWorkers(killer, place, WIRED)
        traveller = Traveller(fleet, legs, *WIRED)
        traveller.go(0)
        for number in range(1, len(legs) + 1):
            traveller.prepare(number)
            id_ = traveller.ids[number]
            dying.go_through(id_, journeys[number], partial(traveller.ask, number))
            traveller.check(number, fleet.ended(id_))
        traveller.go(len(legs) + 1)
        fleet.settle()
        check_at_rest(fleet)
        assert traveller.effects() == calm.effects(), place
        fleet.heal()
    assert len(killer.deaths) >= len(legs) * len(PLACES)
    print(f"\n{trip}: {killer.report()}")
