"""Asks on their way: how a step's question becomes a letter with a token, and is sent again."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from typing import Any

from conductor.operations.definition import AskHost, AskScheduler
from conductor.store.ports import UnitOfWork
from conductor.store.records import OperationRecord
from models.errors import Broken
from models.lifecycle import OperationState
from models.messages.letters import (
    SCHEDULER,
    SELECT_HOSTS,
    Instruction,
    Letter,
    SelectHosts,
    Token,
    instruction_letter,
)

ON_SCHEDULER, ON_CHILDREN, ON_PARENT, ON_INSTANCE, ON_PAUSE = (
    "scheduler",
    "children",
    "parent",
    "instance",
    "pause",
)
ON_HOST = "compute:"


def ask_host(
    uow: UnitOfWork, record: OperationRecord, ask: AskHost[Any], again_s: float
) -> OperationRecord:
    """Post the instruction under a new token and return the record that waits for its answer.

    The instance's fence grows with it: the host will refuse whatever is older.
    """
    instance = uow.instances.lock(ask.instance_id)
    if instance is None:
        raise Broken("instance_missing", f"instance {ask.instance_id} has no record")
    fence = instance.fence + 1
    uow.instances.save(replace(instance, fence=fence, updated_at=uow.now))
    instruction = Instruction(
        token=_token(record, fence),
        instance_id=ask.instance_id,
        verb=ask.verb,
        args=dict(ask.args),
    )
    letter = instruction_letter(ask.host, instruction, record.root_id or record.id)
    waiting = {"host": ask.host, "verb": ask.verb}
    asked = _wait(uow, record, letter, waiting, (ask.timeout_s, again_s))
    return replace(asked, waiting_on=ON_HOST + ask.host)


def ask_scheduler(
    uow: UnitOfWork, record: OperationRecord, ask: AskScheduler[Any], again_s: float
) -> OperationRecord:
    """Post the question to the scheduler and return the record that waits for its answer."""
    token = _token(record, fence=0)
    body = SelectHosts(token=token, wants=ask.wants, alternates=ask.alternates, ignored=ask.ignored)
    name = f"{token.operation_id}/{token.step}/{token.sequence}"
    letter = Letter(
        queue=SCHEDULER,
        task=SELECT_HOSTS,
        body=body.to_json(),
        id=str(uuid.uuid5(uuid.UUID(record.id), name)),
        root_id=record.root_id or record.id,
        parent_id=record.id,
        shown=f"{len(ask.wants)} instances, attempt {record.attempt}",
    )
    asked = _wait(uow, record, letter, {}, (ask.timeout_s, again_s))
    return replace(asked, waiting_on=ON_SCHEDULER)


def ask_again(uow: UnitOfWork, record: OperationRecord, again_s: float) -> OperationRecord:
    """Post the same letter once more, to the letter: the same token finds the same answer."""
    if record.waiting is None:
        raise Broken("nothing_asked", f"operation {record.id} waits for an ask it does not hold")
    uow.post(Letter(**record.waiting["letter"]))
    tries = record.tries + 1
    wait_s = again_s * min(2**tries, 32)
    return replace(record, tries=tries, wake_at=uow.now + wait_s, updated_at=uow.now)


def _token(record: OperationRecord, fence: int) -> Token:
    return Token(
        operation_id=record.id,
        step=record.step,
        attempt=record.attempt,
        sequence=record.sequence + 1,
        fence=fence,
    )


def _wait(
    uow: UnitOfWork,
    record: OperationRecord,
    letter: Letter,
    waiting: dict[str, Any],
    times_s: tuple[float, float],
) -> OperationRecord:
    timeout_s, again_s = times_s
    uow.post(letter)
    state = OperationState.SCHEDULING if letter.queue == SCHEDULER else OperationState.DISPATCHED
    return replace(
        record,
        state=OperationState.UNDOING if record.undoing else state,
        sequence=record.sequence + 1,
        waiting={**waiting, "letter": asdict(letter), "deadline": uow.now + timeout_s},
        tries=0,
        wake_at=uow.now + min(again_s, timeout_s),
    )
