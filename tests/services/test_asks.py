"""What Flower is told of an ask follows from the messages themselves."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from dataclasses import asdict
from typing import Any, Literal

import pytest
from celery.events.state import State

from models.errors import HostRefused
from models.messages.internal import (
    REPORTS,
    Instruction,
    OutgoingMessage,
    Progress,
    Reply,
    Token,
    answer_to,
    instruction_message,
)
from tasks.flower.flower_events import answered, given_up, heard
from tasks.flower.worker_names import worker_name
from tests.workers.world import World, instruction

ROOT, OPERATION = "a3c8f2d0-0000-4000-8000-00000000000a", "b3c8f2d0-0000-4000-8000-00000000000b"
TOKEN = Token(operation_id=OPERATION, step="spawn", attempt=1, sequence=3, fence=4, root_id=ROOT)
ASK = Instruction(token=TOKEN, instance_id="i", verb="spawn")
INSTRUCTION = instruction_message("h1", ASK, ROOT)
BEGUN = heard("reports.progress", Progress(token=TOKEN, sender="h1", percent=0).to_json())


def reply(outcome: Literal["done", "refused", "failed", "stale"], **more: Any) -> OutgoingMessage:
    body = Reply(token=TOKEN, sender="h1", outcome=outcome, **more).to_json()
    return OutgoingMessage(REPORTS, "reports.reply", body, **answer_to(TOKEN))


def shown(*events: Any) -> Any:
    """Return how Celery's own view of events, which is Flower's, shows the ask in the end."""
    state = State()
    sent = {"type": "task-sent", "uuid": INSTRUCTION.id, "name": INSTRUCTION.task}
    for clock, event in enumerate((sent, *events)):
        common = {"hostname": "h", "timestamp": clock, "local_received": clock, "clock": clock}
        state.event({**common, "pid": 1, **event})
    return state.tasks[INSTRUCTION.id]


def test_an_answer_hangs_from_its_ask_and_its_request() -> None:
    outgoing = reply("done")
    assert (outgoing.root_id, outgoing.parent_id) == (ROOT, INSTRUCTION.id)
    assert (INSTRUCTION.root_id, INSTRUCTION.parent_id) == (ROOT, OPERATION)


def test_an_ask_is_begun_by_its_host_and_ended_by_the_answer() -> None:
    assert shown(*BEGUN).state == "STARTED"
    done = shown(*BEGUN, *answered([reply("done")]))
    assert (done.state, done.result) == ("SUCCESS", "done by h1")


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_what_a_host_will_not_or_cannot_do_fails_with_its_reason(
    outcome: Literal["refused", "failed"],
) -> None:
    error = HostRefused("disk_full", "no room for 20 GB").to_json()
    task = shown(*BEGUN, *answered([reply(outcome, error=error)]))
    assert (task.state, task.exception) == (
        "FAILURE",
        "HostRefused('disk_full: no room for 20 GB')",
    )


def test_what_was_overtaken_is_revoked() -> None:
    assert shown(*answered([reply("stale")])).state == "REVOKED"


def test_what_was_given_up_fails_and_still_succeeds_when_the_host_has_done_it_after_all() -> None:
    lost = given_up(asdict(INSTRUCTION), "h1 went down")
    task = shown(*BEGUN, lost)
    assert (task.state, task.exception) == ("FAILURE", "GivenUp('h1 went down')")
    assert shown(*BEGUN, lost, *BEGUN).state == "FAILURE"
    assert shown(*BEGUN, lost, *answered([reply("done")])).state == "SUCCESS"


def test_a_late_copy_of_an_ask_does_not_open_it_again() -> None:
    assert shown(*answered([reply("done")]), *BEGUN).state == "SUCCESS"


def test_other_messages_answer_nothing() -> None:
    assert answered([INSTRUCTION]) == []


def test_an_agent_tells_what_it_begins_and_not_what_it_has_answered_before() -> None:
    world = World()
    agent = world.agent()
    told: list[Instruction] = []
    agent.on_begin = told.append
    agent.receive(instruction("spawn"))
    agent.receive(instruction("spawn"))
    assert told == [instruction("spawn")]


def test_what_is_told_of_a_host_is_named_by_whom_it_came_from_and_by_its_ask() -> None:
    answer = reply("done")
    told = heard("reports.reply", answer.body)
    assert {event["uuid"] for event in told} >= {INSTRUCTION.id}
    assert {event.get("hostname") for event in told if event["uuid"] == INSTRUCTION.id} == {
        "compute-h1@h1"
    }
    own = [event for event in told if event["uuid"] != INSTRUCTION.id]
    assert [event["type"] for event in own] == ["task-received", "task-succeeded"]
    assert (own[0]["root_id"], own[0]["parent_id"]) == (ROOT, INSTRUCTION.id)
    assert len({event["uuid"] for event in own}) == 1


def test_a_host_that_beats_is_a_worker_and_other_reports_are_not_shown() -> None:
    (pulse,) = heard("reports.heartbeat", {"host": "h1", "boot_id": "b"})
    assert (pulse["type"], pulse["hostname"]) == ("worker-heartbeat", "compute-h1@h1")
    assert heard("reports.manifest", {"host": "h1"}) == []
    assert heard("reports.hello", {"host": "h1"}) == []
    further = Progress(token=TOKEN, sender="h1", percent=40).to_json()
    assert heard("reports.progress", further) == []


def test_the_scheduler_tells_the_end_of_its_asks_itself() -> None:
    body = Reply(token=TOKEN, sender="scheduler", outcome="done").to_json()
    assert INSTRUCTION.id not in {event["uuid"] for event in heard("reports.reply", body)}


def test_a_host_is_active_while_a_copy_runs() -> None:
    body = {"host": "h1", "boot_id": "b", "running": [{"verb": "copy", "for_s": 40.0}]}
    (pulse,) = heard("reports.heartbeat", body)
    assert pulse["active"] == 1


def test_an_instruction_that_is_sent_again_stays_what_it_was() -> None:
    again = {"type": "task-sent", "uuid": INSTRUCTION.id, "name": INSTRUCTION.task}
    received, started = BEGUN
    assert shown(received, again).state == "RECEIVED"
    assert shown(received, started, again).state == "STARTED"


def test_a_process_has_the_same_name_in_flower_after_a_restart_and_two_have_two() -> None:
    role = f"r{uuid.uuid4().hex}"
    named = f"from tasks.flower.worker_names import worker_name; print(worker_name({role!r}))"
    starts = [subprocess.check_output([sys.executable, "-c", named], text=True) for _ in range(2)]
    machine = socket.gethostname()
    assert starts == [f"{role}@{machine}\n"] * 2
    assert [worker_name(role) for _ in range(2)] == [f"{role}@{machine}", f"{role}-2@{machine}"]
