"""Names of things, each with a type of its own, and how one id follows from another."""

from __future__ import annotations

import re
import uuid
from typing import NewType

OperationId = NewType("OperationId", str)
InstanceId = NewType("InstanceId", str)
HostName = NewType("HostName", str)
ProjectId = NewType("ProjectId", str)

LONGEST_NAME = 255
"""Characters in the name of anything."""

LONGEST_HOST = 200
"""Characters in the name of a host: with each dot written as three, its queue's still fits AMQP."""

NAME_RULE = f"1 to {LONGEST_NAME} printable characters without a space before or behind them"
HOST_RULE = (
    f"1 to {LONGEST_HOST} letters, digits, '.', '-' and '_' of ASCII, "
    "beginning and ending with a letter or digit"
)
NAME_PATTERN = r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$"
WORDS_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
HOST_PATTERN = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
_HOST = re.compile(HOST_PATTERN.removesuffix("$") + r"\Z")
_LONGEST_QUEUE = 255

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")


def new_operation_id() -> OperationId:
    """Return a fresh random operation id (UUID 4)."""
    return OperationId(str(uuid.uuid4()))


def child_id(parent: OperationId, index: int) -> str:
    """Return the id that every sender can compute for child `index` of an operation (UUID 5)."""
    return str(uuid.uuid5(uuid.UUID(parent), str(index)))


def child_instance_id(parent: OperationId, index: int) -> InstanceId:
    """Return the id of instance `index` (from 0) of a build request."""
    return InstanceId(child_id(parent, index))


def is_uuid(text: str) -> bool:
    """Say whether `text` is a UUID in its usual form: hyphenated, lower case.

    Other spellings of the same number would be other keys to Redis, Celery and our tables.
    """
    try:
        return str(uuid.UUID(text)) == text
    except (ValueError, AttributeError, TypeError):
        return False


def is_name(text: str) -> bool:
    """Say whether `text` can name a flavor, image, zone, group, instance or project.

    Names go to terminals, logs, metrics and file names: no control characters, no direction marks,
    no lone surrogates, nothing that looks like another name.
    """
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def is_host_name(text: str) -> bool:
    """Say whether `text` can name a host: also a folder, a queue and an account are named so."""
    if len(text) > LONGEST_HOST or _HOST.match(text) is None:
        return False
    return len(compute_queue(text)) <= _LONGEST_QUEUE


def compute_queue(host: str) -> str:
    """Return the queue of a host: lower case, every byte outside [a-z0-9-] as `_xx`.

    A dot in a queue name makes RabbitMQ's delayed delivery run tasks twice, and two host names
    must never share a queue, hence an encoding rather than a replacement.
    """
    encoded = "".join(chr(b) if b in _PLAIN else f"_{b:02x}" for b in host.lower().encode())
    return f"compute_{encoded}"
