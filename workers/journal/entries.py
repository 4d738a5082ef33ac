"""The six things a journal says, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from models.errors import Broken
from models.messages.base import parse
from models.messages.internal import Instruction, Reply, Token


@dataclass(frozen=True, slots=True)
class Accepted:
    """We owe the answer to this instruction; `at` is seconds since the epoch."""

    at: float
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Finished:
    """This is the answer; nothing more is done for its token."""

    at: float
    reply: Reply


@dataclass(frozen=True, slots=True)
class Reported:
    """The answer to this token has left the host."""

    key: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of an instance once its instructions are forgotten.

    `fence` and `key` are of its newest instruction, `done` is the highest fence of those that
    are finished. An `at` in the past lets it be forgotten too.
    """

    at: float
    instance_id: str
    fence: int
    key: str
    done: int


@dataclass(frozen=True, slots=True)
class Started:
    """The worker of this journal, named once for all, has started for the `boot`th time."""

    worker_id: str
    boot: int


@dataclass(frozen=True, slots=True)
class Obeys:
    """The database that is obeyed, its newest generation that is known, and when it was said.

    `heard_at` is of the newest canary (its sender's clock). `outdated`: an older generation was
    seen later, and nothing is obeyed until an operator decides.
    """

    database: str
    generation: int
    heard_at: float = 0.0
    outdated: bool = False


Entry: TypeAlias = Accepted | Finished | Reported | Seen | Started | Obeys


def token_key(token: Token) -> str:
    """Return what tells one ask from every other."""
    return f"{token.operation_id}/{token.step}/{token.attempt}/{token.sequence}"


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON values."""
    match entry:
        case Accepted(at, instruction):
            return {"kind": "accepted", "at": at, "instruction": instruction.to_json()}
        case Finished(at, reply):
            return {"kind": "finished", "at": at, "reply": reply.to_json()}
        case Reported(key):
            return {"kind": "reported", "key": key}
        case Seen(at, instance_id, fence, key, done):
            return {
                "kind": "seen",
                "at": at,
                "instance_id": instance_id,
                "fence": fence,
                "key": key,
                "done": done,
            }
        case Started(worker_id, boot):
            return {"kind": "started", "worker_id": worker_id, "boot": boot}
        case Obeys(database, generation, heard_at, outdated):
            return {
                "kind": "obeys",
                "database": database,
                "generation": generation,
                "heard_at": heard_at,
                "outdated": outdated,
            }


def entry_from_json(data: Mapping[str, Any]) -> Entry:
    """Return the entry that `entry_to_json` wrote; raise `Broken` for any other kind.

    A kind we do not know was written by a newer version.
    """
    match data:
        case {"kind": "accepted", "at": at, "instruction": instruction}:
            return Accepted(at, parse(Instruction, instruction))
        case {"kind": "finished", "at": at, "reply": reply}:
            return Finished(at, parse(Reply, reply))
        case {"kind": "reported", "key": key}:
            return Reported(key)
        case {
            "kind": "seen",
            "at": at,
            "instance_id": instance_id,
            "fence": fence,
            "key": key,
            "done": done,
        }:
            return Seen(at, instance_id, fence, key, done)
        case {"kind": "started", "worker_id": worker_id, "boot": boot}:
            return Started(worker_id, boot)
        case {
            "kind": "obeys",
            "database": database,
            "generation": generation,
            "heard_at": heard_at,
            "outdated": outdated,
        }:
            return Obeys(database, generation, heard_at, outdated)
    raise Broken("journal_unknown", f"the journal has an entry of unknown kind: {data!r:.80}")
