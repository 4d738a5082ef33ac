"""Whatever order, duplication, clocks and databases: no guest goes that nobody has had removed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import Rejected
from models.lifecycle import InstanceState
from models.messages.internal import HEARTBEAT, INVENTORY_REPORT, REGISTRATION
from tests.operations.copies import copied, restore
from tests.operations.test_unexpected_guests import put_guest
from tests.operations.world import SHARED, World

HOSTS = ("host-0", "host-1")
_REPORTS = (REGISTRATION, HEARTBEAT, INVENTORY_REPORT)
acts = st.lists(
    st.tuples(
        st.sampled_from(
            ["build", "delete", "move", "restart", "foreign", "empty", "keep", "restore", "repeat"]
        ),
        st.integers(0, 7),
    ),
    max_size=14,
)


class Operator:
    """Does as told, and remembers which guests somebody has asked to have removed, and where."""

    def __init__(self) -> None:
        self.world = World(hosts=2)
        self.built: list[str] = []
        self.removed: set[tuple[str, str | None]] = set()
        self.copy: dict[str, Any] = {}

    def act(self, verb: str, number: int) -> None:
        world, host = self.world, HOSTS[number % 2]
        vm = self.built[number % len(self.built)] if self.built else str(uuid.UUID(int=number))
        if verb == "build":
            operation = world.build(SHARED, host=host)
            world.run_out()
            if world.instance(operation).state is InstanceState.ACTIVE:
                self.built.append(world.instance(operation).id)
        elif verb == "delete":
            self.removed |= {(vm, name) for name in HOSTS}
            world.submit("delete_instance", {"instance_id": vm})
        elif verb == "move":
            self.removed |= {(vm, name) for name in HOSTS if name != host}
            world.submit("live_migrate_instance", {"instance_id": vm, "host": host})
        elif verb == "restart":
            world.kill_host(host)
            world.restart_host(host)
        elif verb == "foreign":
            put_guest(world, host, f"theirs-{number}" if number % 3 else str(uuid.uuid4()))
        elif verb == "repeat":
            for outgoing in [item for item in world.delivered if item.task in _REPORTS][number::3]:
                world.hand_over(outgoing)
        else:
            self._change_database(verb)

    def _change_database(self, verb: str) -> None:
        if verb == "keep":
            self.copy = dict(copied(self.world.store))
        else:
            restore(self.world, self.copy if verb == "restore" else {})


@pytest.mark.hypothesis
@settings(deadline=None)
@given(acts)
def test_no_guest_goes_that_no_operation_was_asked_to_remove(done: list[tuple[str, int]]) -> None:
    operator = Operator()
    world = operator.world
    for verb, number in [*done, ("restart", 0), ("restart", 1)]:
        before = world.guest_pairs()
        operator.act(verb, number)
        try:
            world.settle()
            world.pass_time(61.0)
            world.settle()
        except Rejected:
            continue  # a reply that the database of now did not ask for: a dead letter elsewhere
        gone = before - world.guest_pairs()
        assert gone <= operator.removed, (verb, number, gone)
