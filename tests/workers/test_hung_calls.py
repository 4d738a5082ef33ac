"""Calls that hang: others go on, somebody is told, and each ends at last."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from models.ids import InstanceId
from models.messages.internal import HEARTBEAT, INVENTORY_REPORT, Canary, Instruction, Token
from tests.workers.world import PROMPT, World, spec, until
from workers.agent import Agent
from workers.hypervisor.fault_injection import Call, InjectedFault
from workers.hypervisor.ports import GuestDomain
from workers.hypervisor.simulated import SimulatedHypervisor

WIDTH = 8


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(WIDTH) as executor:
        yield executor


def hanging(verb: str) -> Callable[[Call], InjectedFault]:
    return lambda call: InjectedFault(ending="hang") if call.verb == verb else InjectedFault()


def told(verb: str, instance_id: str) -> Instruction:
    token = Token(operation_id=str(uuid.uuid4()), step=verb, attempt=1, sequence=1, fence=2)
    args = spec().to_json() if verb in ("spawn", "reshape", "rebuild") else {}
    return Instruction(token=token, instance_id=instance_id, verb=verb, args=args)


def world_of_guests(pool: Executor, verb: str, guests: int) -> tuple[World, list[str]]:
    world = World(executor=pool, injected_faults=hanging(verb))
    ids = [str(uuid.UUID(int=number + 1)) for number in range(guests)]
    for identifier in ids:
        world.hypervisor.spawn(InstanceId(identifier), spec(placement=None))
    return world, ids


def hang(world: World, agent: Agent, verb: str, ids: list[str]) -> None:
    for identifier in ids:
        agent.receive(told(verb, identifier))
    assert until(lambda: all(world.hypervisor.calls(InstanceId(i), verb) for i in ids))


def last_beat(world: World) -> dict[str, Any]:
    return world.mailbox.bodies(HEARTBEAT)[-1]


@pytest.mark.parametrize("verb", ["snapshot", "power_on", "rebuild"])
@pytest.mark.parametrize("urgent", ["power_off", "destroy"])
def test_what_is_urgent_begins_though_as_many_calls_hang_as_there_are_threads(
    pool: Executor, verb: str, urgent: str
) -> None:
    world, ids = world_of_guests(pool, verb, WIDTH + 1)
    agent = world.agent()
    hang(world, agent, verb, ids[:WIDTH])
    agent.receive(told(urgent, ids[WIDTH]))
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    agent.kill()


@pytest.mark.parametrize("verb", ["destroy", "power_off", "activate"])
def test_when_what_is_urgent_hangs_others_begin_half_a_minute_later(
    pool: Executor, verb: str
) -> None:
    world, ids = world_of_guests(pool, verb, 3 * WIDTH)
    agent = world.agent()
    hung = ids[: WIDTH + 4]
    hang(world, agent, verb, hung)
    for identifier in ids[WIDTH + 4 : WIDTH + 8]:
        agent.receive(told("reshape", identifier))
    world.clock.now += 30.0
    agent.heartbeat()
    assert until(lambda: len(world.mailbox.outcomes()) == 4)
    agent.kill()


def test_work_goes_on_in_a_pool_that_others_have_clogged() -> None:
    gate = Event()
    with ThreadPoolExecutor(1) as clogged:
        clogged.submit(gate.wait, 60)
        world = World(executor=clogged)
        agent = world.agent()
        agent.receive(told("spawn", str(uuid.uuid4())))
        world.clock.now += 30.0
        agent.heartbeat()
        assert until(lambda: world.mailbox.outcomes() == ["done"])
        gate.set()
        agent.kill()
    assert world.mailbox.outcomes() == ["done"]


def test_a_heartbeat_names_what_has_run_for_long_and_since_when(pool: Executor) -> None:
    world, ids = world_of_guests(pool, "snapshot", 1)
    agent = world.agent()
    hang(world, agent, "snapshot", ids)
    agent.heartbeat()
    assert last_beat(world)["running"] == []
    world.clock.now += 31.0
    agent.heartbeat()
    (call,) = last_beat(world)["running"]
    assert (call["verb"], call["instance_id"], call["for_s"]) == ("snapshot", ids[0], 31.0)
    assert last_beat(world)["hangs"] is False
    agent.kill()


def test_a_host_whose_threads_all_hang_says_so(pool: Executor) -> None:
    world, ids = world_of_guests(pool, "snapshot", WIDTH)
    agent = world.agent()
    hang(world, agent, "snapshot", ids)
    world.clock.now += 301.0
    agent.heartbeat()
    assert last_beat(world)["hangs"] is True
    agent.kill()


def test_a_call_without_a_sign_of_life_is_aborted_and_answered(pool: Executor) -> None:
    world, ids = world_of_guests(pool, "snapshot", 1)
    agent = world.agent()
    hang(world, agent, "snapshot", ids)
    world.clock.now += PROMPT.call_limit_s
    agent.heartbeat()
    assert until(lambda: world.mailbox.codes() == ["aborted"])
    agent.kill()


class MuteHypervisor(SimulatedHypervisor):
    """Lists its guests only once it is told to."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mute = Event()
        self.speak = Event()

    def domains(self) -> tuple[GuestDomain, ...]:
        if self.mute.is_set():
            self.speak.wait(60)
        return super().domains()


def test_a_hypervisor_that_does_not_list_its_guests_stops_no_heartbeat_and_no_work(
    pool: Executor,
) -> None:
    world = World(executor=pool)
    world.hypervisor = mute = MuteHypervisor(world.hardware)
    agent = world.agent()
    mute.mute.set()
    for _ in range(4):
        world.clock.now += PROMPT.manifest_s
        agent.heartbeat()
    agent.receive(told("spawn", str(uuid.uuid4())))
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    assert len(world.mailbox.bodies(HEARTBEAT)) == 4
    assert last_beat(world)["running"][0]["verb"] == "list_guests"
    assert last_beat(world)["hangs"] is True
    assert world.mailbox.bodies(INVENTORY_REPORT) == []
    mute.mute.clear()
    mute.speak.set()
    assert until(lambda: _lists_again(world, agent))
    agent.kill()


def _lists_again(world: World, agent: Agent) -> bool:
    world.clock.now += PROMPT.manifest_s
    agent.heartbeat()
    return bool(world.mailbox.bodies(INVENTORY_REPORT))


def test_what_was_heard_through_the_queue_is_in_the_next_heartbeat() -> None:
    world = World()
    agent = world.agent()
    agent.heartbeat()
    assert last_beat(world)["heard_at"] == 0.0
    agent.hear(Canary(sent_at=7.5))
    agent.hear(Canary(sent_at=3.0))
    agent.heartbeat()
    assert last_beat(world)["heard_at"] == 7.5
