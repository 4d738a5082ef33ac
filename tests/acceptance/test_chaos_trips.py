"""Every other operation dies at every commit, before and after it (`make chaos`)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.killing import Killer
from tests.acceptance.sending import CONTEXT, PINNED, instance_of
from tests.acceptance.stops import Moment
from tests.acceptance.test_kills import check_shown
from tests.operations.audit import check_at_rest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]

Leg = tuple[str, dict[str, Any], InstanceState]
BIGGER = {**PINNED, "vcpus": 4}
TRIPS: dict[str, list[Leg]] = {
    "rebuild": [("rebuild_instance", {"image": {"id": "other"}}, InstanceState.ACTIVE)],
    "migrate and confirm": [
        ("migrate_instance", {}, InstanceState.RESIZED),
        ("confirm_resize", {}, InstanceState.ACTIVE),
    ],
    "resize and revert": [
        ("resize_instance", {"flavor": BIGGER}, InstanceState.RESIZED),
        ("revert_resize", {}, InstanceState.ACTIVE),
    ],
    "live migrate": [("live_migrate_instance", {}, InstanceState.ACTIVE)],
    "shelve and unshelve": [
        ("shelve_instance", {"offload": True}, InstanceState.SHELVED_OFFLOADED),
        ("unshelve_instance", {}, InstanceState.ACTIVE),
    ],
}


def travel(fleet: Fleet, killer: Killer, legs: list[Leg], fatal: dict[str, Moment]) -> list[str]:
    """Take a new instance on a trip, with a death in every leg for which one is given."""
    build = fleet.sender.build()
    assert fleet.ended(build).state is OperationState.SUCCEEDED
    instance_id = instance_of(build)
    ids = []
    for task, arguments, state in legs:
        id_ = str(uuid.uuid4())
        ids.append(id_)
        body = {"context": CONTEXT, "instance_id": instance_id, **arguments}

        def ask(task: str = task, body: dict[str, Any] = body, id_: str = id_) -> None:
            fleet.sender.send(task, body, id_)

        moment = fatal.get(task)
        if moment is None:
            ask()
            record = fleet.ended(id_)
        else:
            record = killer.at(id_, moment, ask)
        assert record.state is OperationState.SUCCEEDED, (task, moment, record.error)
        assert fleet.instance(instance_id).state is state, (task, moment)
    fleet.ended(fleet.sender.ask("delete", instance_id))
    return ids


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("trip", TRIPS)
def test_a_death_at_every_commit_of_a_trip(fleet: Fleet, trip: str, committed: bool) -> None:
    legs = TRIPS[trip]
    killer = Killer(fleet, committed=committed)
    ids = travel(fleet, killer, legs, {})
    journeys = {leg[0]: fleet.stops.journey(id_) for leg, id_ in zip(legs, ids, strict=True)}
    for place in range(max(map(len, journeys.values()))):
        fatal = {task: moments[place] for task, moments in journeys.items() if place < len(moments)}
        travel(fleet, killer, legs, fatal)
        fleet.settle()
        check_at_rest(fleet)
    check_shown(fleet, killer)
    print(f"\n{trip}: {killer.report()}")
