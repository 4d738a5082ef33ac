"""A worker obeys the database that it knows, and no other until an operator decides."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.messages.internal import (
    HEARTBEAT,
    REGISTRATION,
    TRUST_DATABASE,
    Canary,
    Instruction,
    TrustedDatabase,
)
from tests.workers.world import HOST, OTHER_VM, VM, World, instruction
from workers.journal.entries import Obeys
from workers.obeyed_database import after_canary, why_disobeyed

OURS, OTHER = "ours", "another"


def of(database: str | None, verb: str = "spawn", fence: int = 1, vm: str = VM) -> Instruction:
    """An instruction of a database."""
    return instruction(verb, fence, vm).model_copy(update={"database": database})


def trust(database: str, instead_of: str) -> Instruction:
    """What an operator has sent who trusts a database."""
    decision = TrustedDatabase(database=database, generation=1, instead_of=instead_of)
    return instruction(TRUST_DATABASE, args=decision.to_json()).model_copy(update={"host": HOST})


def canary(generation: int, sent_at: float, database: str = OURS) -> Canary:
    """A canary of a database."""
    return Canary(sent_at=sent_at, database=database, generation=generation)


def test_the_first_database_that_instructs_a_worker_is_the_one_it_obeys() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS))
    agent.receive(of(OTHER, "destroy", fence=2))
    assert world.hypervisor.domain(VM) is not None
    assert world.mailbox.outcomes() == ["done", "refused"]
    assert world.mailbox.codes() == [None, "database_distrusted"]


def test_an_instruction_that_names_no_database_is_not_obeyed_once_one_is_known() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS))
    agent.receive(of(None, "destroy", fence=2))
    assert world.hypervisor.domain(VM) is not None


def test_what_is_obeyed_outlives_the_worker() -> None:
    world = World()
    world.agent().receive(of(OURS))
    successor = world.agent()
    successor.receive(of(OTHER, "destroy", fence=2))
    assert world.hypervisor.domain(VM) is not None


def test_a_worker_obeys_nothing_once_its_database_is_an_older_copy() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS))
    agent.hear(canary(7, sent_at=10.0))
    agent.hear(canary(5, sent_at=11.0))
    agent.receive(of(OURS, "destroy", fence=2))
    assert world.hypervisor.domain(VM) is not None
    assert world.mailbox.codes()[-1] == "database_distrusted"
    agent.hear(canary(9, sent_at=12.0))  # the copy goes on: it is still the copy
    world.agent().receive(of(OURS, "destroy", fence=3))
    assert world.hypervisor.domain(VM) is not None


def test_a_canary_that_comes_late_says_nothing_of_the_database() -> None:
    world = World()
    agent = world.agent()
    agent.hear(canary(7, sent_at=10.0))
    agent.hear(canary(6, sent_at=9.0))
    agent.receive(of(OURS))
    assert world.mailbox.outcomes() == ["done"]


def test_heartbeats_and_registrations_say_what_is_obeyed() -> None:
    world = World()
    world.agent().hear(canary(7, sent_at=10.0))
    agent = world.agent()
    agent.heartbeat()
    said = [
        m.body.get("obeys") for m in world.mailbox.messages if m.task in (REGISTRATION, HEARTBEAT)
    ]
    expected = {"database": OURS, "generation": 7, "outdated": False}
    assert said[0] is None
    assert said[1:] == [expected] * (len(said) - 1)
    assert len(said) >= 3


def test_an_operator_can_have_another_database_obeyed() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS, fence=9))
    agent.receive(trust(OTHER, instead_of=OURS))
    # What the lost database had instructed says nothing of the fences of this one.
    agent.receive(of(OTHER, "power_off", fence=2))
    domain = world.hypervisor.domain(VM)
    assert domain is not None
    assert domain.power == "shutdown"
    agent.receive(of(OURS, "destroy", fence=10))
    assert world.hypervisor.domain(VM) is not None
    assert [m.task for m in world.mailbox.messages].count(REGISTRATION) == 2


def test_a_decision_about_another_database_than_the_one_obeyed_changes_nothing() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS))
    agent.receive(trust(OTHER, instead_of="a third"))
    agent.receive(of(OTHER, vm=OTHER_VM))
    assert world.hypervisor.domain(OTHER_VM) is None


def test_a_decision_for_another_host_changes_nothing() -> None:
    world = World()
    agent = world.agent()
    agent.receive(of(OURS))
    agent.receive(trust(OTHER, instead_of=OURS).model_copy(update={"host": "host-2"}))
    agent.receive(of(OTHER, vm=OTHER_VM))
    assert world.hypervisor.domain(OTHER_VM) is None


@pytest.mark.hypothesis
@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.randoms())
def test_one_history_is_trusted_however_its_canaries_are_shuffled_and_repeated(
    steps: list[int], chance: Random
) -> None:
    generations = [1 + sum(steps[:n]) for n in range(len(steps))]
    canaries = [canary(g, sent_at=float(n)) for n, g in enumerate(generations)] * 2
    chance.shuffle(canaries)
    known: Obeys | None = None
    for heard in canaries:
        known = after_canary(known, heard)
    assert known is not None
    assert known.generation == max(generations)
    assert why_disobeyed(known, OURS) is None
