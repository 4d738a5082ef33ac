"""An agent carries each instruction out once and says what came of it."""

import uuid

import pytest

from models.errors import Broken, Rejected, Unreachable
from models.messages.internal import REPLY
from tests.workers.world import (
    HOST,
    OTHER_VM,
    PROMPT,
    VM,
    World,
    instruction,
    operation_of,
    placement,
    spec,
)
from workers.hypervisor.fault_injection import Call, InjectedFault
from workers.journal.entries import Seen, Started
from workers.journal.memory_journal import MemoryJournal
from workers.settings import WorkerSettings


def test_a_spawn_starts_the_guest_and_says_so() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn"))
    domain = world.hypervisor.domain(VM)
    assert domain is not None
    assert domain.power == "running"
    assert domain.spec == spec()
    (reply,) = world.mailbox.replies()
    assert (reply.outcome, reply.sender) == ("done", HOST)
    assert reply.result == {"power_state": "running"}


@pytest.mark.parametrize(
    ("verb", "power"), [("power_off", "shutdown"), ("power_on", "running"), ("destroy", None)]
)
def test_every_verb_has_its_effect_on_the_guest(verb: str, power: str | None) -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("power_off", fence=2))
    agent.receive(instruction(verb, fence=3))
    domain = world.hypervisor.domain(VM)
    assert (domain.power if domain else None) == power
    assert world.mailbox.outcomes() == ["done"] * 3


def test_a_reply_is_the_same_message_however_often_it_is_sent() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn"))
    agent.receive(instruction("spawn"))
    first, again = (message for message in world.mailbox.messages if message.task == REPLY)
    assert first == again
    assert (first.root_id, first.parent_id) == (
        operation_of(VM),
        instruction("spawn").token.message_id,
    )
    assert str(uuid.UUID(first.id)) == first.id


def test_a_duplicate_of_a_finished_instruction_gets_the_recorded_answer_and_no_second_effect() -> (
    None
):
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn"))
    agent.receive(instruction("spawn"))
    assert world.mailbox.outcomes() == ["done", "done"]
    assert world.hypervisor.calls(VM, "spawn") == 1


def test_an_instruction_older_than_the_newest_seen_is_stale_and_does_nothing() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("destroy", fence=5))
    agent.receive(instruction("spawn", fence=4))
    assert world.mailbox.outcomes() == ["done", "stale"]
    assert world.hypervisor.calls(VM, "spawn") == 0


def test_fences_of_different_instances_do_not_meet() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=5))
    agent.receive(instruction("spawn", fence=4, instance_id=OTHER_VM))
    assert world.mailbox.outcomes() == ["done", "done"]


def test_a_fence_is_remembered_beyond_the_life_of_the_agent() -> None:
    world = World()
    world.agent().receive(instruction("destroy", fence=5))
    world.agent().receive(instruction("spawn", fence=4))
    assert world.mailbox.outcomes()[-1] == "stale"
    assert world.hypervisor.domains() == ()


def test_a_refusal_of_the_hypervisor_is_answered_as_refused_with_its_error() -> None:
    world = World(injected_faults=lambda _: InjectedFault(ending="refused"))
    world.agent().receive(instruction("spawn"))
    (reply,) = world.mailbox.replies()
    assert reply.outcome == "refused"
    assert reply.error is not None
    assert (reply.error["kind"], reply.error["code"]) == ("HostRefused", "simulated_refusal")


def test_a_refused_guest_leaves_its_cpus_to_the_next() -> None:
    def first_refused(call: Call) -> InjectedFault:
        return InjectedFault(ending="refused" if call.instance_id == VM else "done")

    world = World(injected_faults=first_refused)
    agent = world.agent()
    pinned = spec(placement({0: 1})).to_json()
    agent.receive(instruction("spawn", args=pinned))
    agent.receive(instruction("spawn", args=pinned, instance_id=OTHER_VM))
    assert world.mailbox.outcomes() == ["refused", "done"]


def test_a_hypervisor_without_an_answer_is_asked_again_before_others_are_told() -> None:
    def once_lost(call: Call) -> InjectedFault:
        return InjectedFault(ending="lost_after" if call.nth == 0 else "done")

    world = World(injected_faults=once_lost)
    world.agent().receive(instruction("spawn"))
    assert world.mailbox.outcomes() == ["done"]
    assert (world.hypervisor.calls(VM, "spawn"), world.effects("spawn")) == (2, 1)


def test_a_hypervisor_that_never_answers_makes_the_instruction_fail() -> None:
    world = World(injected_faults=lambda _: InjectedFault(ending="lost_before"))
    world.agent().receive(instruction("spawn"))
    (reply,) = world.mailbox.replies()
    assert reply.outcome == "failed"
    assert reply.error is not None
    assert reply.error["kind"] == "Unreachable"
    assert world.hypervisor.calls(VM, "spawn") == PROMPT.attempts


def test_a_spawn_that_comes_too_late_is_refused_as_expired() -> None:
    world = World()
    world.agent().receive(instruction("spawn", expires_at=world.clock.now - 5))
    (reply,) = world.mailbox.replies()
    assert reply.outcome == "refused"
    assert reply.error is not None
    assert (reply.error["code"], reply.error["data"]) == ("expired", {"late_s": 5.0})
    assert world.hypervisor.calls(VM, "spawn") == 0


def test_a_destroy_never_comes_too_late() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("destroy", fence=2, expires_at=world.clock.now - 5))
    assert world.mailbox.outcomes() == ["done", "done"]
    assert world.hypervisor.domains() == ()


def test_powering_a_guest_that_is_not_there_is_refused() -> None:
    world = World()
    world.agent().receive(instruction("power_on"))
    (reply,) = world.mailbox.replies()
    assert reply.outcome == "refused"
    assert reply.error is not None
    assert reply.error["code"] == "domain_missing"


def test_a_verb_of_a_newer_conductor_is_refused_so_that_another_host_may_know_it() -> None:
    world = World()
    world.agent().receive(instruction("teleport"))
    (reply,) = world.mailbox.replies()
    assert (reply.outcome, (reply.error or {})["code"]) == ("refused", "verb_unknown")


@pytest.mark.parametrize(
    "args",
    [
        {"bad": 1},
        {"name": "vm", "vcpus": "two", "memory_mib": 1, "disk_gb": 1},
        spec({"cells": [{"id": 0}]}).to_json(),
    ],
)
def test_a_malformed_spawn_fails_and_harms_nothing(args: dict[str, object]) -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1, args=args))
    agent.receive(instruction("spawn", fence=2))
    assert world.mailbox.outcomes() == ["failed", "done"]
    error = world.mailbox.replies()[0].error
    assert error is not None
    assert error["kind"] == "Rejected"


def test_a_second_definition_of_a_guest_under_the_same_id_fails_and_keeps_the_first() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("spawn", fence=2, args=spec(memory_mib=1024).to_json()))
    assert world.mailbox.outcomes() == ["done", "failed"]
    domain = world.hypervisor.domain(VM)
    assert domain is not None
    assert domain.spec == spec()


def test_replies_wait_while_the_broker_is_down_and_none_is_lost() -> None:
    world = World()
    agent = world.agent()
    world.mailbox.down = True
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("power_off", fence=2))
    assert world.mailbox.outcomes() == []
    world.mailbox.down = False
    agent.heartbeat()
    assert [reply.token.fence for reply in world.mailbox.replies()] == [1, 2]


def test_a_broker_that_is_down_is_not_hammered_by_every_reply() -> None:
    world = World()
    agent = world.agent()
    world.mailbox.down = True
    posts = world.mailbox.posts
    for fence in range(1, 21):
        agent.receive(instruction("power_on", fence=fence))
    assert world.mailbox.posts - posts == PROMPT.attempts


def test_replies_that_never_left_are_sent_by_the_next_agent() -> None:
    world = World()
    agent = world.agent()
    world.mailbox.down = True
    agent.receive(instruction("spawn"))
    agent.kill()
    world.mailbox.down = False
    world.agent()
    assert world.mailbox.outcomes() == ["done"]
    assert world.hypervisor.calls(VM, "spawn") == 1


def test_replies_that_have_left_are_not_sent_again_by_the_next_agent() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn"))
    agent.kill()
    world.agent()
    assert world.mailbox.outcomes() == ["done"]


def test_a_draining_agent_takes_nothing_and_gives_it_back_to_the_broker() -> None:
    world = World()
    agent = world.agent()
    assert agent.drain(timeout_s=1)
    with pytest.raises(Unreachable) as refused:
        agent.receive(instruction("spawn"))
    assert refused.value.code == "agent_stopped"
    world.agent()
    assert world.hypervisor.domains() == ()


def test_a_killed_agent_neither_writes_nor_sends_nor_beats() -> None:
    world = World()
    agent = world.agent()
    agent.kill()
    before = world.journal.entries(), len(world.mailbox.messages)
    agent.heartbeat()
    with pytest.raises(Unreachable):
        agent.receive(instruction("spawn"))
    assert (world.journal.entries(), len(world.mailbox.messages)) == before


def test_a_journal_that_fails_stops_the_agent_before_it_acts() -> None:
    class Failing(MemoryJournal):
        gone = False

        def sync(self) -> None:
            if self.gone:
                raise Broken("journal_failed", "the disk is gone")

    journal = Failing()
    world = World(journal=journal)
    agent = world.agent()
    journal.gone = True
    with pytest.raises(Broken):
        agent.receive(instruction("spawn"))
    with pytest.raises(Broken):
        agent.heartbeat()
    assert world.hypervisor.calls(VM, "spawn") == 0
    assert not agent.running


def test_compaction_keeps_fences_and_what_is_owed_and_forgets_old_answers() -> None:
    world = World(settings=WorkerSettings(retry_wait_s=0, compact_after=0, replies_kept_s=100))
    agent = world.agent()
    agent.receive(instruction("spawn", fence=7))
    world.clock.now += 200
    agent.heartbeat()
    assert [type(entry) for entry in world.journal.entries()] == [Started, Seen]
    agent.receive(instruction("destroy", fence=6))
    agent.receive(instruction("spawn", fence=7))
    assert world.mailbox.outcomes() == ["done", "stale", "stale"]
    assert world.hypervisor.calls(VM, "spawn") == 1


def test_the_fence_of_a_guest_that_is_gone_is_forgotten_after_its_retention() -> None:
    kept = WorkerSettings(retry_wait_s=0, compact_after=0, replies_kept_s=1, fences_kept_s=100)
    world = World(settings=kept)
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("spawn", fence=1, instance_id=OTHER_VM))
    agent.receive(instruction("destroy", fence=2))
    world.clock.now += 200
    agent.heartbeat()
    (_, left) = world.journal.entries()
    assert getattr(left, "instance_id", None) == OTHER_VM


def test_a_setting_below_its_least_value_is_refused_by_name() -> None:
    with pytest.raises(Rejected) as refused:
        WorkerSettings(concurrency=0)
    assert refused.value.key == "concurrency"
