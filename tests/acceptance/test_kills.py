"""Every process dies at every step of build, stop, start and delete: once each, on purpose."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

from models.lifecycle import InstanceState, OperationState
from tests.acceptance.conftest import VERBS, Journeys
from tests.acceptance.fleet import Fleet
from tests.acceptance.killing import Killer
from tests.acceptance.sending import build_body, instance_of
from tests.acceptance.stops import Moment
from tests.acceptance.traps import (
    VERB_OF,
    Acted,
    Answered,
    Delivered,
    Finished,
    Journaled,
    Trap,
)
from tests.limits import limit_s

RECOVERY_S = 25.0
"""Far more than it takes (below two seconds); far less than any deadline that would hide a loss."""

AFTER = {
    "build": InstanceState.ACTIVE,
    "stop": InstanceState.STOPPED,
    "start": InstanceState.ACTIVE,
    "delete": InstanceState.DELETED,
}


def live(fleet: Fleet, killer: Killer, kills: dict[str, Moment | None]) -> str:
    """Let an instance live, with one kill in each operation for which one is given."""
    build = str(uuid.uuid4())
    instance_id = instance_of(build)

    def act(verb: str, id_: str, moment: Moment | None) -> None:
        def ask() -> None:
            if verb == "build":
                fleet.sender.send("build_instances", build_body(), id_)
            else:
                fleet.sender.ask(verb, instance_id, id_)

        if moment is None:
            ask()
            record = fleet.ended(id_)
        else:
            record = killer.at(id_, moment, ask)
        assert record.state is OperationState.SUCCEEDED, (verb, moment, record.error)
        assert fleet.instance(instance_id).state is AFTER[verb], (verb, moment)

    act("build", build, kills["build"])
    for verb in VERBS:
        act(verb, str(uuid.uuid4()), kills[verb])
    return instance_id


def check_shown(fleet: Fleet, killer: Killer) -> None:
    """Whoever waits for a result of Celery's gets it, whichever process died beside which step."""
    for id_, what in killer.survivors.items():
        fleet.until(
            lambda id_=id_: fleet.sender.state(id_) == "SUCCESS", f"the result of {what}", 30
        )


def check_done_once(fleet: Fleet, instance_id: str) -> None:
    """The hypervisors' own records: every effect happened exactly once."""
    effects = {
        verb: fleet.effects(instance_id, verb)
        for verb in ("spawn", "power_off", "power_on", "destroy")
    }
    assert effects == dict.fromkeys(effects, 1), (instance_id, effects)


def test_conductors_and_schedulers_die_after_every_commit(fleet: Fleet, journeys: Journeys) -> None:
    killer = Killer(fleet)
    for moments in zip_longest(*journeys.values()):
        kills = dict(zip(journeys, moments, strict=True))
        check_done_once(fleet, live(fleet, killer, kills))
    check_shown(fleet, killer)
    print(killer.report())
    assert {death.member.partition("-")[0] for death in killer.deaths} == {"conductor", "scheduler"}
    assert len(killer.deaths) == sum(map(len, journeys.values()))
    assert killer.worst_s < limit_s(RECOVERY_S)


def test_a_request_outlives_whoever_dies_before_its_first_commit(
    fleet: Fleet, journeys: Journeys
) -> None:
    """Nothing of it is in the database yet: only the broker still knows of it."""
    killer = Killer(fleet, committed=False)
    kills: dict[str, Moment | None] = {verb: moments[0] for verb, moments in journeys.items()}
    check_done_once(fleet, live(fleet, killer, kills))
    print(killer.report())
    assert killer.worst_s < limit_s(RECOVERY_S)


def live_with(trap: Trap, killer: Killer) -> str:
    """Let an instance live on the trap's host, and its worker die in each operation."""
    fleet = trap.fleet
    if trap.fault_options:
        fleet.restart(trap.worker.name, *trap.fault_options)
    build = str(uuid.uuid4())
    instance_id = instance_of(build)
    for verb, state in AFTER.items():
        id_ = build if verb == "build" else str(uuid.uuid4())
        trap.worker.wait_ready()
        trap.arm(id_)
        if verb == "build":
            fleet.sender.send("build_instances", build_body(host=trap.host), id_)
        else:
            fleet.sender.ask(verb, instance_id, id_)
        trap.wait(instance_id, VERB_OF[verb])
        trap.spring()
        died_at = time.monotonic()
        trap.worker.start(*trap.fault_options)
        record = fleet.ended(id_)
        killer.note(f"{verb} {trap.place}", trap.worker.name, died_at)
        assert record.state is OperationState.SUCCEEDED, (verb, trap.place, record.error)
        assert fleet.instance(instance_id).state is state, (verb, trap.place)
    return instance_id


def traps_of(fleet: Fleet, journeys: Journeys) -> list[Trap]:
    """Return a trap for each place, on a host of its own."""
    answered = {verb: moments[-2].text for verb, moments in journeys.items()}
    return [
        Delivered(fleet, "alpha"),
        Journaled(fleet, "beta"),
        Acted(fleet, "gamma"),
        Finished(fleet, "delta"),
        Answered(fleet, "epsilon", answered),
    ]


def test_a_compute_worker_dies_at_every_place_of_every_instruction(
    fleet: Fleet, journeys: Journeys
) -> None:
    killer = Killer(fleet)
    traps = traps_of(fleet, journeys)
    with ThreadPoolExecutor(len(traps)) as pool:
        for instance_id in pool.map(lambda trap: live_with(trap, killer), traps):
            check_done_once(fleet, instance_id)
    print(killer.report())
    assert len(killer.deaths) == len(traps) * len(AFTER)
    assert killer.worst_s < limit_s(RECOVERY_S)
