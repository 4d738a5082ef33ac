"""The long forms (`make chaos`): every death before and after its commit, and all at once."""

from __future__ import annotations

import random
import time
from itertools import zip_longest

import pytest

from tests.acceptance.conftest import Journeys
from tests.acceptance.faults import Faults
from tests.acceptance.fleet import Fleet
from tests.acceptance.killing import Killer
from tests.acceptance.load import Load
from tests.acceptance.test_kills import check_done_once, check_shown, live, live_with, traps_of
from tests.acceptance.traps import Acknowledged
from tests.environment import variables
from tests.operations.audit import check_at_any_time, check_at_rest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]
SEEDS = (1, 2, 3)
FAILING = ("latency_s=0.05", "latency_max_s=0.5", "lost=0.1", "spawn.refused=0.1")


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
def test_conductors_and_schedulers_die_at_every_commit(
    fleet: Fleet, journeys: Journeys, committed: bool
) -> None:
    killer = Killer(fleet, committed=committed)
    for moments in zip_longest(*journeys.values()):
        kills = dict(zip(journeys, moments, strict=True))
        check_done_once(fleet, live(fleet, killer, kills))
    check_shown(fleet, killer)
    print(f"\n{killer.report()}")


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
def test_the_only_conductor_dies_at_every_commit(
    fleet: Fleet, journeys: Journeys, committed: bool
) -> None:
    """Nobody takes over: what was being done is found again by the next life."""
    killer = Killer(fleet, committed=committed, alone=True)
    for moments in zip_longest(*journeys.values()):
        kills = dict(zip(journeys, moments, strict=True))
        check_done_once(fleet, live(fleet, killer, kills))
    check_shown(fleet, killer)
    print(f"\nalone: {killer.report()}")


def test_somebody_else_dies_with_whoever_dies_at_every_commit(
    fleet: Fleet, journeys: Journeys
) -> None:
    chance = random.Random(7)
    killer = Killer(fleet, also=lambda: chance.choice(list(fleet.members)))
    for moments in zip_longest(*journeys.values()):
        kills = dict(zip(journeys, moments, strict=True))
        killer.committed = not killer.committed
        check_done_once(fleet, live(fleet, killer, kills))
    check_shown(fleet, killer)
    print(f"\npairs: {killer.report()}")


def test_a_compute_worker_dies_at_every_place_one_after_the_other(
    fleet: Fleet, journeys: Journeys
) -> None:
    killer = Killer(fleet)
    for trap in [*traps_of(fleet, journeys), Acknowledged(fleet, "delta")]:
        check_done_once(fleet, live_with(trap, killer))
    print(f"\n{killer.report()}")


@pytest.mark.parametrize("injected", [(), FAILING], ids=["sound", "failing"])
@pytest.mark.parametrize("seed", SEEDS)
def test_anything_dies_at_any_time_under_load(
    fleet: Fleet, service_variables: dict[str, str], seed: int, injected: tuple[str, ...]
) -> None:
    chance = random.Random(seed)
    load = Load(fleet, random.Random(seed), builds=150, pause_s=0.2)
    control = service_variables[variables.BROKER_CONTROL]
    faults = Faults(fleet, control, chance, injected)
    sending = load.start()
    while sending.is_alive():
        faults.any()()
        check_at_any_time(fleet)
        time.sleep(chance.uniform(0.0, 0.8))
    ended_at = time.monotonic()
    fleet.heal()
    fleet.all_ended(load.operations, timeout_s=300)
    fleet.settle(timeout_s=120)
    recovery_s = time.monotonic() - ended_at
    fleet.figures.faults.update(faults.injected)
    fleet.figures.rest_s = max(fleet.figures.rest_s, recovery_s)
    load.check(refusals=bool(injected))
    check_at_rest(fleet)
    print(
        f"\nseed {seed}: {len(load.operations)} operations ({dict(load.counts)}),"
        f" {faults.injected.total()} faults ({dict(faults.injected)}),"
        f" all at rest {recovery_s:.1f} s after the last"
    )
