"""One bad row, message or part of the periodic work keeps nothing else from being done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conductor.outbox_relay import SWEEP_AFTER_S
from conductor.reaper import OVERDUE_BATCH
from conductor.store import Heartbeat, Store, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from conductor.upkeep import PeriodicWork, forget_processes, troubles
from models.errors import Unreachable
from models.lifecycle import OperationState
from models.messages.internal import OutgoingMessage
from tasks.sending.in_process_bus import InProcessBus
from tests.contracts.store import records
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, World

LATE_S = SWEEP_AFTER_S + 1.0
FAILED = "it failed (ZeroDivisionError): the log of the process has the error"


class PickyBus(InProcessBus):
    """Cannot encode messages for some queues: says so as the broker's carrier does, or raises."""

    def __init__(self, unsendable: str, *, raises: bool = False) -> None:
        super().__init__()
        self.unsendable = unsendable
        self.raises = raises

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        bad = {
            outgoing_message.id: "too long"
            for outgoing_message in outgoing_messages
            if outgoing_message.queue == self.unsendable
        }
        if bad and self.raises:
            raise ValueError("too long")
        super().send(
            [
                outgoing_message
                for outgoing_message in outgoing_messages
                if outgoing_message.id not in bad
            ]
        )
        if bad:
            raise Unreachable("unsendable", "too long", unsent=list(bad), unsendable=bad)


def world_with(bus: InProcessBus) -> World:
    world = World(hosts=2)
    world.bus = bus
    world.restart_conductor()
    for name in world.hosts:
        world.restart_host(name)
    world.settle()
    return world


@pytest.mark.parametrize("raises", [False, True])
def test_a_host_that_cannot_be_written_to_is_left_for_another(raises: bool) -> None:
    world = world_with(PickyBus("compute_host-0", raises=raises))
    builds = [world.build(PINNED) for _ in range(2)]
    world.settle()
    for _ in range(4):
        world.pass_time(LATE_S)
        world.settle()
    for build in builds:
        assert world.ended(build) is OperationState.SUCCEEDED
        assert world.instance(build).host == "host-1"
    with world.store.read() as uow:
        outgoing_messages = uow.dead_letters.where()
        assert uow.outbox.where() == []
    assert {outgoing_message.queue for outgoing_message in outgoing_messages} == {"compute_host-0"}
    why = "it cannot be sent (ValueError)" if raises else "too long"
    assert all(why in outgoing_message.reason for outgoing_message in outgoing_messages)
    check_at_rest(world)


def test_a_message_that_nobody_waits_for_is_set_aside_and_the_others_leave() -> None:
    world = world_with(PickyBus("nowhere", raises=True))
    with world.store.begin() as uow:
        for number in range(3):
            uow.post(OutgoingMessage("nowhere", "notice", {"n": number}))
            uow.post(OutgoingMessage("elsewhere", "notice", {"n": number}))
    world.pass_time(LATE_S)
    assert world.bus.depths()["elsewhere"] == 3
    with world.store.read() as uow:
        assert len(uow.dead_letters.where()) == 3
        assert uow.outbox.where() == []


def test_what_is_overdue_ends_though_a_message_cannot_be_sent() -> None:
    world = world_with(PickyBus("nowhere", raises=True))
    build = world.build(PINNED)
    world.deliver("conductor")
    with world.store.begin() as uow:
        uow.post(OutgoingMessage("nowhere", "notice", {}))
    world.pass_time(10_000.0)
    assert world.ended(build) is OperationState.FAILED


class Work:
    """Fails while it is told to."""

    def __init__(self) -> None:
        self.fails = False
        self.done = 0

    def __call__(self) -> None:
        if self.fails:
            raise ZeroDivisionError("a defect")
        self.done += 1


@pytest.fixture
def store() -> Store:
    store = MemoryStore(lambda: 1_000.0)
    with store.begin() as uow:
        uow.heartbeats.put(Heartbeat("conductor@a", "conductor", uow.now))
    return store


def shown(store: Store) -> list[tuple[str, str]]:
    with store.read() as uow:
        return troubles(uow)


def test_every_part_is_done_whatever_becomes_of_the_others(store: Store) -> None:
    rounds, bad, good = PeriodicWork(store, "conductor@a"), Work(), Work()
    bad.fails = True
    with pytest.raises(ZeroDivisionError):
        rounds.run(bad=bad, good=good)
    assert good.done == 1


def test_a_part_that_fails_is_shown_until_it_succeeds_again(store: Store) -> None:
    rounds, part = PeriodicWork(store, "conductor@a"), Work()
    part.fails = True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            rounds.run(outbox=part)
        assert shown(store) == [("conductor@a/outbox", FAILED)]
    part.fails = False
    rounds.run(outbox=part)
    assert shown(store) == []


def test_what_failed_in_a_process_that_is_gone_is_forgotten_with_it(store: Store) -> None:
    part = Work()
    part.fails = True
    with pytest.raises(ZeroDivisionError):
        PeriodicWork(store, "conductor@a").run(outbox=part)
    with store.begin() as uow:
        assert forget_processes(uow, uow.now + 1.0) == 2
        assert uow.catalogue.where(kind="trouble") == []


def test_operations_that_cannot_be_moved_do_not_hide_the_others() -> None:
    world = World(hosts=1)

    def add(uow: UnitOfWork) -> None:
        for number in range(OVERDUE_BATCH):
            bad = records.an_operation(
                f"bad-{number}", kind="build_instance", step="no such step",
                state=OperationState.RUNNING, wake_at=1.0, definition_version=1,
            )  # fmt: skip
            uow.operations.add(bad)

    build = world.build(PINNED)
    world.deliver("conductor")
    with world.store.begin() as uow:
        add(uow)
    world.pass_time(10_000.0)
    world.pass_time(1.0)
    assert world.ended(build) is OperationState.FAILED
