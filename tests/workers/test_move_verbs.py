"""The verbs of moves: what each leaves of the guest, what it refuses, and what a repeat does."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

from models.messages.guests.guest_definition import GuestDefinition
from models.messages.internal import PROGRESS
from tests.workers.world import OTHER_VM, VM, World, instruction, placement, spec, until
from workers.agent import Agent
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults
from workers.journal.entries import Reported, token_key


class Told:
    """A host that is told one verb after the other, each newer than the last."""

    def __init__(
        self, injected_faults: InjectedFaults | None = None, executor: Executor | None = None
    ) -> None:
        self.world = (
            World(injected_faults, executor=executor)
            if injected_faults
            else World(executor=executor)
        )
        self.agent: Agent = self.world.agent()
        self.fence = 0

    def tell(self, verb: str, args: dict[str, Any] | None = None, instance_id: str = VM) -> None:
        self.fence += 1
        self.agent.receive(instruction(verb, self.fence, instance_id, args))

    def all_of(self, *verbs: str) -> None:
        for verb in verbs:
            self.tell(verb)

    def power(self) -> str | None:
        domain = self.world.hypervisor.domain(VM)
        return domain.power if domain else None

    def last(self) -> tuple[str, str | None]:
        return self.world.mailbox.outcomes()[-1], self.world.mailbox.codes()[-1]


def asking(power: str, guest: GuestDefinition | None = None) -> dict[str, Any]:
    return {**(guest or spec()).to_json(), "power": power}


def slow(verb: str, latency_s: float) -> InjectedFaults:
    return lambda call: InjectedFault(latency_s=latency_s if call.verb == verb else 0.0)


@pytest.mark.parametrize("power", ["running", "shutdown", "nostate"])
@pytest.mark.parametrize("verb", ["spawn", "rebuild"])
def test_a_new_guest_has_the_power_that_was_asked_for(verb: str, power: str) -> None:
    host = Told()
    host.tell(verb, asking(power))
    assert host.power() == power
    assert host.world.mailbox.replies()[-1].result["power_state"] == power


def test_two_specs_that_differ_in_power_are_the_same_guest() -> None:
    host = Told()
    host.tell("spawn", asking("shutdown"))
    host.tell("spawn", asking("running"))
    assert (host.last(), host.power()) == (("done", None), "running")


def test_a_waiting_guest_is_activated_once_and_a_running_one_stays_so() -> None:
    host = Told()
    host.tell("spawn", asking("nostate"))
    host.all_of("activate", "activate")
    assert (host.last(), host.power()) == (("done", None), "running")
    assert host.world.effects("activate") == 1


def test_activating_a_stopped_guest_is_refused_since_its_memory_never_came() -> None:
    host = Told()
    host.tell("activate")
    assert host.last() == ("refused", "domain_missing")
    host.all_of("spawn", "power_off", "activate")
    assert (host.last(), host.power()) == (("refused", "not_waiting"), "shutdown")


def test_a_reshaped_guest_may_keep_some_of_its_cpus_and_gives_the_others_back() -> None:
    host = Told()
    host.tell("spawn", spec(placement({0: 0, 1: 1})).to_json())
    host.tell("reshape", asking("shutdown", spec(placement({0: 1, 1: 2}), vcpus=2)))
    assert (host.last(), host.power()) == (("done", None), "shutdown")
    host.tell("spawn", spec(placement({0: 0})).to_json(), OTHER_VM)
    assert host.last() == ("done", None)
    host.tell("reshape", asking("running", spec(placement({0: 0, 1: 1}))))
    assert host.last() == ("refused", "cpu_pinning_invalid")


@pytest.mark.parametrize("verb", ["reshape", "rebuild"])
def test_no_guest_is_given_the_cpus_or_pages_of_another(verb: str) -> None:
    host = Told()
    pages = placement(memory=2048, pagesize=2048)
    host.tell("spawn", spec(placement({0: 0})).to_json())
    host.tell("spawn", spec(pages).to_json(), OTHER_VM)
    host.tell("spawn", spec(placement({0: 1})).to_json(), "third")
    host.tell(verb, asking("shutdown", spec(placement({0: 1}))))
    assert host.last() == ("refused", "cpu_pinning_invalid")
    host.tell(verb, asking("shutdown", spec(placement(memory=2, pagesize=2048))))
    assert host.last() == ("refused", "pages_taken")
    domain = host.world.hypervisor.domain(VM)
    assert domain is not None
    assert (domain.power, domain.spec) == ("running", spec(placement({0: 0})))
    host.tell("check_target", spec(placement({0: 0})).to_json(), "fourth")
    assert host.last() == ("refused", "cpu_pinning_invalid")


@pytest.mark.parametrize("verb", ["reshape", "rebuild"])
def test_a_guest_whose_new_definition_the_hypervisor_refuses_holds_its_old_place(verb: str) -> None:
    host = Told(lambda call: InjectedFault(ending="refused" if call.verb == verb else "done"))
    host.tell("spawn", spec(placement({0: 0})).to_json())
    host.tell(verb, asking("running", spec(placement({0: 1}))))
    assert host.last() == ("refused", "simulated_refusal")
    host.tell("spawn", spec(placement({0: 1})).to_json(), OTHER_VM)
    assert host.last() == ("done", None)
    host.tell("spawn", spec(placement({0: 0})).to_json(), "third")
    assert host.last() == ("refused", "cpu_pinning_invalid")


def test_there_is_nothing_to_reshape_copy_abort_or_save_without_a_guest() -> None:
    host = Told()
    for verb in ("reshape", "copy", "abort_copy", "snapshot", "check_source"):
        host.tell(verb)
        assert host.last() == ("refused", "domain_missing")
    assert host.world.hypervisor.domains() == ()


def test_a_rebuild_makes_a_guest_whether_or_not_there_was_one() -> None:
    host = Told()
    for image in ("one", "two"):
        host.tell("rebuild", spec(image={"id": image}).to_json())
        domain = host.world.hypervisor.domain(VM)
        assert domain is not None
        assert domain.spec == spec(image={"id": image})
    assert host.world.effects("rebuild") == 2


def test_a_target_is_asked_without_any_effect() -> None:
    host = Told()
    pinned = spec(placement({0: 1})).to_json()
    host.tell("check_target", pinned)
    assert host.last() == ("done", None)
    host.tell("spawn", pinned, OTHER_VM)
    assert host.last() == ("done", None)
    host.tell("check_target", pinned)
    assert host.last() == ("refused", "cpu_pinning_invalid")
    assert [domain.instance_id for domain in host.world.hypervisor.domains()] == [OTHER_VM]


def test_a_source_can_be_copied_from_only_while_its_guest_runs() -> None:
    host = Told()
    host.all_of("spawn", "check_source")
    assert host.last() == ("done", None)
    host.all_of("power_off", "check_source")
    assert host.last() == ("refused", "not_running")
    host.tell("copy")
    assert host.last() == ("refused", "not_running")


def test_saving_a_guest_changes_nothing_of_it() -> None:
    host = Told()
    host.all_of("spawn", "power_off", "snapshot")
    assert (host.last(), host.power()) == (("done", None), "shutdown")
    assert host.world.effects("snapshot") == 0


def test_a_copied_guest_is_stopped_on_its_source_and_says_100_percent() -> None:
    host = Told()
    host.all_of("spawn", "copy")
    assert (host.last(), host.power()) == (("done", None), "shutdown")
    assert [body["percent"] for body in host.world.mailbox.bodies(PROGRESS)] == [100]


def test_a_second_copy_of_a_copied_guest_is_done_at_once() -> None:
    lengths = iter((0.0, 60.0))
    host = Told(lambda call: InjectedFault(latency_s=next(lengths) if call.verb == "copy" else 0.0))
    host.all_of("spawn", "copy", "copy")
    assert (host.last(), host.power()) == (("done", None), "shutdown")
    assert (host.world.hypervisor.calls(VM, "copy"), host.world.effects("copy")) == (2, 1)


def test_a_copy_whose_answer_was_lost_is_asked_again_and_has_one_effect() -> None:
    host = Told(lambda call: InjectedFault(ending="done" if call.nth else "lost_after"))
    host.all_of("spawn", "copy")
    assert host.last() == ("done", None)
    assert host.world.effects("copy") == 1


def test_whatever_was_copied_runs_on_its_source_again_after_an_abort() -> None:
    host = Told()
    host.all_of("spawn", "abort_copy")
    assert (host.last(), host.power()) == (("done", None), "running")
    host.all_of("copy", "abort_copy", "abort_copy")
    assert (host.last(), host.power()) == (("done", None), "running")
    host.tell("copy")
    assert (host.last(), host.power()) == (("done", None), "shutdown")
    assert host.world.effects("copy") == 2


def test_a_guest_that_was_copied_and_started_again_is_not_taken_for_copied() -> None:
    host = Told()
    host.all_of("spawn", "copy", "power_on", "power_off", "copy")
    assert host.last() == ("refused", "not_running")


@pytest.mark.parametrize("newer", ["abort_copy", "power_on", "destroy", "power_off"])
@pytest.mark.parametrize(
    "injected_fault", [InjectedFault(latency_s=60), InjectedFault(ending="hang")]
)
def test_whatever_is_newer_ends_a_copy_that_runs(newer: str, injected_fault: InjectedFault) -> None:
    def injected_faults(call: Call) -> InjectedFault:
        return injected_fault if call.verb == "copy" else InjectedFault()

    with ThreadPoolExecutor(4) as pool:
        host = Told(injected_faults, pool)
        host.all_of("spawn", "copy")
        assert until(lambda: host.world.hypervisor.calls(VM, "copy") == 1)
        host.tell(newer)
        assert until(lambda: len(host.world.mailbox.replies()) == 3)
        host.agent.kill()
    assert host.world.mailbox.codes() == [None, "aborted", None]
    powers = {"destroy": None, "power_off": "shutdown"}
    assert host.power() == powers.get(newer, "running")


def test_what_is_older_or_of_another_instance_ends_no_copy() -> None:
    with ThreadPoolExecutor(4) as pool:
        host = Told(slow("copy", 0.3), pool)
        host.all_of("spawn", "copy")
        assert until(lambda: host.world.hypervisor.calls(VM, "copy") == 1)
        host.agent.receive(instruction("power_on", 1))
        host.tell("destroy", instance_id=OTHER_VM)
        assert host.agent.drain(5)
    outcomes = {reply.token.step: reply.outcome for reply in host.world.mailbox.replies()}
    assert outcomes == {"spawn": "done", "copy": "done", "power_on": "stale", "destroy": "done"}
    assert host.power() == "shutdown"


def test_a_long_copy_says_how_far_it_is_before_it_answers() -> None:
    with ThreadPoolExecutor(4) as pool:
        host = Told(slow("copy", 1.3), pool)
        host.all_of("spawn", "copy")
        assert until(lambda: len(host.world.mailbox.replies()) == 2)
        host.agent.drain(5)
    first, last = host.world.mailbox.bodies(PROGRESS)
    assert 70 <= first["percent"] < 100
    assert last["percent"] == 100
    assert first["token"]["step"] == "copy"
    reported = [entry.key for entry in host.world.journal.entries() if isinstance(entry, Reported)]
    assert reported == [token_key(reply.token) for reply in host.world.mailbox.replies()]


def test_a_copy_that_dies_with_its_agent_is_begun_again_by_the_next() -> None:
    injected_faults = iter((InjectedFault(ending="hang"), InjectedFault()))
    with ThreadPoolExecutor(4) as pool:
        host = Told(
            lambda call: next(injected_faults) if call.verb == "copy" else InjectedFault(), pool
        )
        host.all_of("spawn", "copy")
        assert until(lambda: host.world.hypervisor.calls(VM, "copy") == 1)
        host.agent.kill()
        assert host.power() == "running"
        successor = host.world.agent()
        assert until(lambda: len(host.world.mailbox.replies()) == 2)
        successor.kill()
    assert (host.last(), host.power()) == (("done", None), "shutdown")


def test_a_carrier_that_is_down_keeps_no_copy_from_ending() -> None:
    host = Told()
    host.tell("spawn")
    host.world.mailbox.down = True
    host.tell("copy")
    assert host.power() == "shutdown"
    host.world.mailbox.down = False
    host.agent.heartbeat()
    assert host.last() == ("done", None)
