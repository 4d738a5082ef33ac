"""An agent with threads: instructions of an instance stay in order, hangs end, a kill is final."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Barrier, Event, Thread

import pytest

from models.errors import HostRefused
from models.messages.internal import REPLY
from tests.limits import limit_s
from tests.workers.world import OTHER_VM, VM, World, instruction, until
from workers.hypervisor.fault_injection import Call, FaultProfile, FaultRates, InjectedFault, seeded
from workers.settings import WorkerSettings


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def test_receive_returns_before_the_work_is_done(pool: Executor) -> None:
    gate = Event()

    def patient(_: Call) -> InjectedFault:
        gate.wait(5)
        return InjectedFault()

    world = World(injected_faults=patient, executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn"))
    assert world.mailbox.outcomes() == []
    gate.set()
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    agent.kill()


def test_a_duplicate_of_an_instruction_under_way_changes_nothing(pool: Executor) -> None:
    gate = Event()

    def patient(_: Call) -> InjectedFault:
        gate.wait(5)
        return InjectedFault()

    world = World(injected_faults=patient, executor=pool)
    agent = world.agent()
    for _ in range(3):
        agent.receive(instruction("spawn"))
    gate.set()
    assert agent.drain(5)
    assert world.mailbox.outcomes() == ["done"]
    assert world.hypervisor.calls(VM, "spawn") == 1


def test_different_instances_are_worked_on_at_the_same_time(pool: Executor) -> None:
    together = Barrier(4, timeout=limit_s(5))

    def meeting(_: Call) -> InjectedFault:
        together.wait()
        return InjectedFault()

    world = World(injected_faults=meeting, executor=pool)
    agent = world.agent()
    for number in range(4):
        agent.receive(instruction("spawn", instance_id=f"vm-{number}"))
    assert until(lambda: len(world.mailbox.replies()) == 4)
    assert not together.broken
    agent.kill()


def test_no_more_instances_at_once_than_the_concurrency_allows(pool: Executor) -> None:
    busy: list[int] = []
    most: list[int] = []

    def counting(_: Call) -> InjectedFault:
        busy.append(1)
        most.append(len(busy))
        Event().wait(0.005)
        busy.pop()
        return InjectedFault()

    world = World(injected_faults=counting, executor=pool, settings=WorkerSettings(concurrency=2))
    agent = world.agent()
    for number in range(12):
        agent.receive(instruction("spawn", instance_id=f"vm-{number}"))
    assert until(lambda: len(world.mailbox.replies()) == 12)
    assert max(most) == 2
    agent.kill()


def test_a_newer_instruction_waits_for_the_older_one_of_its_instance(pool: Executor) -> None:
    order: list[str] = []

    def slow_spawn(call: Call) -> InjectedFault:
        if call.verb == "spawn":
            Event().wait(0.05)
        order.append(call.verb)
        return InjectedFault()

    world = World(injected_faults=slow_spawn, executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("power_off", fence=2))
    assert until(lambda: len(world.mailbox.replies()) == 2)
    assert order == ["spawn", "power_off"]
    domain = world.hypervisor.domain(VM)
    assert domain is not None
    assert domain.power == "shutdown"
    agent.kill()


def test_a_destroy_ends_the_hanging_spawn_before_it(pool: Executor) -> None:
    world = World(
        injected_faults=lambda call: InjectedFault(
            ending="hang" if call.verb == "spawn" else "done"
        )
    )
    world.executor = pool
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    agent.receive(instruction("destroy", fence=2))
    assert until(lambda: world.mailbox.outcomes() == ["refused", "done"])
    error = world.mailbox.replies()[0].error
    assert error is not None
    assert error["code"] == "aborted"
    assert world.hypervisor.domains() == ()
    agent.kill()


def test_a_hang_that_begins_after_the_abort_is_ended_by_a_heartbeat(pool: Executor) -> None:
    in_time = Event()

    def late_hang(call: Call) -> InjectedFault:
        if call.verb == "spawn" and not in_time.is_set():
            in_time.wait(5)
            return InjectedFault(ending="hang")
        return InjectedFault()

    world = World(injected_faults=late_hang, executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    agent.receive(instruction("destroy", fence=2))
    in_time.set()

    def beaten() -> bool:
        agent.heartbeat()
        return len(world.mailbox.replies()) == 2

    assert until(beaten)
    assert world.mailbox.outcomes()[-1] == "done"
    agent.kill()


def test_a_hanging_guest_does_not_hold_up_the_others(pool: Executor) -> None:
    world = World(
        injected_faults=lambda call: InjectedFault(
            ending="hang" if call.instance_id == VM else "done"
        )
    )
    world.executor = pool
    agent = world.agent()
    agent.receive(instruction("spawn"))
    agent.receive(instruction("spawn", instance_id=OTHER_VM))
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    agent.kill()


def test_an_older_instruction_that_has_not_begun_is_overtaken(pool: Executor) -> None:
    gate = Event()

    def patient(call: Call) -> InjectedFault:
        if call.verb == "spawn":
            gate.wait(5)
        return InjectedFault()

    world = World(injected_faults=patient, executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    agent.receive(instruction("power_off", fence=2))
    agent.receive(instruction("power_on", fence=3))
    gate.set()
    assert until(lambda: world.mailbox.outcomes() == ["done", "stale", "done"])
    assert world.hypervisor.calls(VM, "power_off") == 0
    agent.kill()


def test_draining_finishes_what_runs_and_leaves_the_rest_to_the_next_agent(pool: Executor) -> None:
    gate = Event()

    def patient(call: Call) -> InjectedFault:
        if call.instance_id == VM:
            gate.wait(5)
        return InjectedFault()

    world = World(injected_faults=patient, executor=pool, settings=WorkerSettings(concurrency=1))
    agent = world.agent()
    agent.receive(instruction("spawn"))
    agent.receive(instruction("spawn", instance_id=OTHER_VM))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    drained: list[bool] = []
    draining = Thread(target=lambda: drained.append(agent.drain(5)))
    draining.start()
    gate.set()
    draining.join(5)
    assert drained == [True]
    assert world.mailbox.outcomes() == ["done"]
    assert world.hypervisor.calls(OTHER_VM, "spawn") == 0
    successor = world.agent()
    assert until(lambda: world.mailbox.outcomes() == ["done", "done"])
    assert world.effects("spawn", OTHER_VM) == 1
    successor.kill()


def test_draining_does_not_wait_for_ever_for_a_hang(pool: Executor) -> None:
    world = World(injected_faults=lambda _: InjectedFault(ending="hang"), executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn"))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    assert not agent.drain(0.05)
    assert not agent.running
    assert world.hypervisor.domains() == ()


def test_a_kill_ends_calls_under_way_without_effect_answer_or_entry(pool: Executor) -> None:
    hanging = {"hang": True}

    def injected_fault(_: Call) -> InjectedFault:
        return InjectedFault(ending="hang" if hanging["hang"] else "done")

    world = World(injected_faults=injected_fault, executor=pool)
    agent = world.agent()
    agent.receive(instruction("spawn"))
    assert until(lambda: world.hypervisor.calls(VM, "spawn") == 1)
    agent.kill()
    entries = world.journal.entries()
    assert world.hypervisor.domains() == ()
    hanging["hang"] = False
    successor = world.agent()
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    assert world.journal.entries()[: len(entries)] == entries
    assert world.effects("spawn") == 1
    successor.kill()


def test_whatever_moment_an_agent_is_killed_its_successor_finishes_the_work(
    pool: Executor,
) -> None:
    profile = FaultProfile(FaultRates(latency_s=0.0, latency_max_s=0.004, lost=0.1))
    world = World(injected_faults=seeded(profile, seed=7), executor=pool)
    instances = [f"vm-{number}" for number in range(30)]
    agent = world.agent()
    for round_number in range(6):
        for instance_id in instances[round_number * 5 : round_number * 5 + 5]:
            agent.receive(instruction("spawn", fence=1, instance_id=instance_id))
        Event().wait(0.002 * round_number)
        agent.kill()
        agent = world.agent()
    done: set[str] = set()

    def all_answered() -> bool:
        agent.heartbeat()
        done.update(
            reply.token.operation_id for reply in world.mailbox.replies() if reply.outcome == "done"
        )
        return len(done) == len(instances)

    assert until(all_answered, timeout_s=20)
    assert {domain.instance_id for domain in world.hypervisor.domains()} == set(instances)
    assert [world.effects("spawn", instance) for instance in instances] == [1] * 30
    agent.kill()


def test_many_threads_may_hand_in_instructions_at_once(pool: Executor) -> None:
    world = World(executor=pool)
    agent = world.agent()

    def sender(number: int) -> None:
        for guest in range(25):
            agent.receive(instruction("spawn", instance_id=f"vm-{number}-{guest}"))

    threads = [Thread(target=sender, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert until(lambda: len(world.mailbox.replies()) == 100)
    assert len({message.id for message in world.mailbox.messages if message.task == REPLY}) == 100
    agent.kill()


def test_a_carrier_that_blocks_delays_no_receive(pool: Executor) -> None:
    world = World(executor=pool)
    agent = world.agent()
    agent.receive(instruction("destroy", fence=9))
    assert until(lambda: world.mailbox.outcomes() == ["done"])
    blocked = Event()
    released = Event()

    def block() -> None:
        blocked.set()
        released.wait(5)

    world.mailbox.before_post = block
    agent.receive(instruction("spawn", fence=1))
    assert blocked.wait(5)
    released.set()
    assert until(lambda: world.mailbox.outcomes() == ["done", "stale"])
    agent.kill()


def test_a_call_of_a_dead_agent_is_not_made() -> None:
    world = World()
    agent = world.agent()
    agent.kill()
    world.agent().receive(instruction("destroy", fence=2))
    agent._work(instruction("spawn", fence=1))
    assert world.hypervisor.calls(VM, "spawn") == 0
    with pytest.raises(HostRefused):
        world.hypervisor.power_on(VM)
