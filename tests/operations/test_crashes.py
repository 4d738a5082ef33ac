"""Processes die after any commit; messages come twice, late, in any order: nothing is lost."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from models.ids import OperationId, child_instance_id
from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_any_time, check_at_rest
from tests.operations.world import PINNED, SHARED, Killed, World
from workers.hypervisor.fault_injection import Call, Ending, InjectedFault, InjectedFaults


def run_mortal(world: World, dies_after: int) -> bool:
    """Run a world whose conductor dies after so many commits; say whether it did."""
    world.store.commits_left = dies_after
    try:
        world.run_out()
    except Killed:
        world.restart_conductor()
        world.run_out()
        return True
    return False


@pytest.mark.parametrize("flavor", [SHARED, PINNED])
def test_a_conductor_that_dies_after_any_commit_of_a_build_loses_nothing(
    flavor: dict[str, object],
) -> None:
    for dies_after in range(1, 100):
        world = World(hosts=2)
        operation = world.build(flavor, count=2)
        died = run_mortal(world, dies_after)
        assert world.ended(operation) is OperationState.SUCCEEDED
        effects = [
            host.hypervisor.effects(world.instance(operation, n).id, "spawn")
            for n in range(2)
            for host in world.hosts.values()
        ]
        assert sum(effects) == 2
        check_at_rest(world)
        if not died:
            assert dies_after > 8
            return
    raise AssertionError("a build has no end")


def test_a_conductor_that_dies_after_any_commit_of_a_failing_build_leaves_nothing() -> None:
    def refused(_: str) -> InjectedFaults:
        return lambda call: InjectedFault(ending="refused" if call.verb == "spawn" else "done")

    for dies_after in range(1, 100):
        world = World(hosts=2, injected_faults=refused)
        operation = world.build(PINNED)
        died = run_mortal(world, dies_after)
        assert world.ended(operation) is OperationState.FAILED
        assert world.guests() == {}
        check_at_rest(world)
        if not died:
            return
    raise AssertionError("a build has no end")


def test_every_message_twice_changes_nothing() -> None:
    world = World()
    operation = world.build(PINNED, count=3)
    world.settle(times=2)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert len(world.guests()) == 3
    check_at_rest(world)


def test_messages_that_come_again_after_the_end_change_nothing() -> None:
    world = World()
    build = world.build(PINNED)
    world.run_out()
    delete = world.submit("delete_instance", {"instance_id": world.instance(build).id})
    world.run_out()
    before = [world.operation(build), world.operation(delete), world.instance(build)]
    for outgoing in list(world.delivered):
        world.hand_over(outgoing)
    world.run_out()
    assert [world.operation(build), world.operation(delete), world.instance(build)] == before
    check_at_rest(world)


def test_a_delete_wins_after_any_number_of_messages_of_a_build() -> None:
    for outgoing_messages in range(30):
        world = World(hosts=2)
        build = world.build(PINNED)
        for _ in range(outgoing_messages):
            queues = world.waiting_queues()
            if not queues:
                break
            world.deliver(queues[0])
        instance_id = child_instance_id(OperationId(build), 0)
        deletes = [world.submit("delete_instance", {"instance_id": instance_id}) for _ in range(2)]
        world.run_out()
        assert [world.ended(d) for d in deletes] == [OperationState.SUCCEEDED] * 2
        assert world.instance(build).state is InstanceState.DELETED
        assert world.guests() == {}
        check_at_rest(world)


def test_a_delete_that_overtakes_its_build_wins() -> None:
    world = World()
    build = world.build(PINNED)
    early = world.bus.take("conductor")
    assert early is not None
    instance_id = child_instance_id(OperationId(build), 0)
    delete = world.submit("delete_instance", {"instance_id": instance_id})
    world.run_out()
    world.hand_over(early)
    world.run_out()
    assert world.ended(delete) is OperationState.SUCCEEDED
    assert world.instance(build).state is InstanceState.DELETED
    assert world.guests() == {}
    check_at_rest(world)


ASKED: list[tuple[str, dict[str, object]]] = [
    ("delete_instance", {}),
    ("stop_instance", {}),
    ("start_instance", {}),
    ("migrate_instance", {}),
    ("resize_instance", {"flavor": {**PINNED, "vcpus": 3}}),
    ("confirm_resize", {}),
    ("revert_resize", {}),
    ("live_migrate_instance", {}),
    ("rebuild_instance", {"image": {"id": "img-2"}}),
    ("evacuate_instance", {}),
    ("shelve_instance", {}),
    ("shelve_instance", {"offload": True}),
    ("unshelve_instance", {}),
]


class AnythingHappens(RuleBasedStateMachine):
    """Requests, letters in any order, twice or lost with a host, deaths, and time."""

    @initialize(
        endings=st.dictionaries(
            st.sampled_from(["host-0", "host-1", "host-2"]),
            st.sampled_from(["done", "refused", "lost_before", "lost_after"]),
        )
    )
    def begin(self, endings: dict[str, Ending]) -> None:
        def faults_of(host: str) -> InjectedFaults:
            def injected_fault(call: Call) -> InjectedFault:
                bad = call.nth < 2 and call.verb != "destroy"
                return InjectedFault(ending=endings.get(host, "done") if bad else "done")

            return injected_fault

        self.world = World(hosts=3, injected_faults=faults_of)
        self.builds: list[str] = []

    @rule(pinned=st.booleans(), count=st.integers(1, 2))
    def build(self, pinned: bool, count: int) -> None:
        if len(self.builds) < 6:
            self.builds.append(self.world.build(PINNED if pinned else SHARED, count=count))

    @rule(data=st.data(), asked=st.sampled_from(ASKED))
    @precondition(lambda self: self.builds)
    def ask(self, data: st.DataObject, asked: tuple[str, dict[str, object]]) -> None:
        build = data.draw(st.sampled_from(self.builds))
        task, arguments = asked
        instance_id = child_instance_id(OperationId(build), 0)
        self.world.submit(task, {"instance_id": instance_id, **arguments})

    @rule(data=st.data())
    @precondition(lambda self: self.ended())
    def replay(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.ended()))
        self.world.submit("replay_operation", {"operation_id": old})

    def ended(self) -> list[str]:
        if not hasattr(self, "world"):
            return []
        with self.world.store.read() as uow:
            failed = uow.operations.where(state=("FAILED", "CANCELLED", "STUCK"))
        return sorted(operation.id for operation in failed)[:20]

    @rule(data=st.data())
    @precondition(lambda self: self.builds)
    def cancel(self, data: st.DataObject) -> None:
        self.world.service.cancel(data.draw(st.sampled_from(self.builds)), "an operator said so")

    @rule(data=st.data(), times=st.integers(1, 2))
    @precondition(lambda self: self.world.waiting_queues())
    def deliver(self, data: st.DataObject, times: int) -> None:
        self.world.deliver(data.draw(st.sampled_from(self.world.waiting_queues())), times)

    @rule(data=st.data())
    @precondition(lambda self: self.world.delivered)
    def deliver_again(self, data: st.DataObject) -> None:
        self.world.hand_over(data.draw(st.sampled_from(self.world.delivered)))

    @rule(commits=st.integers(1, 3), data=st.data())
    @precondition(lambda self: self.world.waiting_queues())
    def die_while_delivering(self, commits: int, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(self.world.waiting_queues()))
        self.world.store.commits_left = commits
        with suppress(Killed):
            self.world.deliver(queue)
        self.world.restart_conductor()

    @rule(name=st.sampled_from(["host-0", "host-1", "host-2"]), messages_lost=st.booleans())
    def kill_host(self, name: str, messages_lost: bool) -> None:
        self.world.kill_host(name)
        if messages_lost:
            self.world.bus.drop(f"compute_{name}")

    @rule(name=st.sampled_from(["host-0", "host-1", "host-2"]))
    def restart_host(self, name: str) -> None:
        self.world.kill_host(name)
        self.world.restart_host(name)

    @rule(seconds=st.sampled_from([1.0, 20.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            check_at_any_time(self.world)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for name in self.world.hosts:
            self.world.kill_host(name)
            self.world.restart_host(name)
        self.world.run_out()
        self.world.pass_time(
            100.0
        )  # inventory reports: a host may have obeyed an old message meanwhile
        self.world.run_out()
        check_at_rest(self.world)


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
