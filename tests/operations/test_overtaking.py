"""Requests that meet each other in the middle of being accepted, by several conductors."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.operations.engine.acceptance import Incoming, accept
from conductor.operations.engine.transitions import Engine
from conductor.operations.operation_registry import OPERATIONS
from models.ids import OperationId, child_instance_id
from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_rest
from tests.operations.world import CONTEXT, World


class CommittedMeanwhile:
    """Rows of which the first to be locked is not there yet: its transaction commits just after."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._yet = False

    def lock(self, *key: str) -> Any:
        if not self._yet:
            self._yet = True
            return None
        return self._rows.lock(*key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


@pytest.mark.parametrize("verb", ["delete", "stop", "start"])
def test_a_request_that_meets_the_commit_of_its_build_takes_nothing_from_it(verb: str) -> None:
    world = World()
    build = world.build()
    world.deliver("conductor")  # accepted, and waiting for the scheduler
    instance_id = child_instance_id(OperationId(build), 0)
    body = {"context": CONTEXT, "instance_id": instance_id}
    met = "5d0c3b64-8f5e-4f0e-9c1b-6a1f2f6f4a10"
    with world.store.begin() as uow:
        late: Any = uow
        late.instances = CommittedMeanwhile(uow.instances)
        ready = accept(Engine(OPERATIONS), uow, Incoming(met, f"conductor.{verb}_instance", body))
    world.service.drive(ready)
    world.run_out()
    deleted = verb == "delete"
    assert (world.ended(met) is OperationState.SUCCEEDED) == deleted
    state = InstanceState.DELETED if deleted else InstanceState.ACTIVE
    assert world.instance(build).state is state
    check_at_rest(world)
