"""Read a part of what an instance has written to its console: changes nothing, waits for nobody.

It is no operation on the instance: it is read whatever else is going on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from conductor.liveness import host_is_up
from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState
from models.messages.base import parse
from models.messages.guests.console_parts import ConsolePart, ConsoleRequest
from models.messages.requests import ReadConsole

ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Console:
    """Whose console, on which host, which part of it, and what that was."""

    guest_id: str
    host: str
    offset: int | None
    most_bytes: int
    text: str = ""
    next_offset: int = 0


read_console = Operation("read_console", Console, deadline_s=120.0)


@read_console.accept
def check(new: NewOperation, uow: UnitOfWork) -> Console:
    """The instance must be on a host that is up."""
    request = cast(ReadConsole, new.request)
    instance = uow.instances.get(request.guest_id)
    if instance is None or instance.state is InstanceState.DELETED:
        message = f"guest_id is {request.guest_id}: no such instance"
        raise Rejected("instance_unknown", message, key="guest_id")
    if instance.host is None:
        message = f"guest_id is {instance.id}: it is {instance.state.value}, and on no host"
        raise Rejected("no_host", message, key="guest_id")
    if not host_is_up(uow, instance.host, new.down_after_s):
        message = f"guest_id is {instance.id}: its host {instance.host} is down"
        raise Rejected("host_down", message, key="guest_id")
    return Console(instance.id, instance.host, request.offset, request.most_bytes)


@read_console.step
def read(console: Console, _: UnitOfWork) -> Outcome[Console]:
    """Have its host read it."""
    request = ConsoleRequest(
        guest_id=console.guest_id, offset=console.offset, most_bytes=console.most_bytes
    )
    args = request.to_json()
    return DispatchToHost(
        console, console.host, None, "read_console", args, timeout_s=ANSWER_TIMEOUT_S
    )


@read.reply
def answered(console: Console, result: Json, _: UnitOfWork) -> Console:
    """Keep what its host has answered."""
    part = parse(ConsolePart, result)
    return replace(console, text=part.text, next_offset=part.next_offset)


@read_console.result
def part_of(console: Console) -> Json:
    """Return the text, and where the next part begins."""
    return {"host": console.host, "text": console.text, "next_offset": console.next_offset}
