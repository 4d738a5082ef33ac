"""Names of things, each with a type of its own, and how one id follows from another."""

from __future__ import annotations

import uuid
from typing import NewType

OperationId = NewType("OperationId", str)
InstanceId = NewType("InstanceId", str)
HostName = NewType("HostName", str)
ProjectId = NewType("ProjectId", str)

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


def compute_queue(host: str) -> str:
    """Return the queue of a host: lower case, every byte outside [a-z0-9-] as `_xx`.

    A dot in a queue name makes RabbitMQ's delayed delivery run tasks twice, and two host names
    must never share a queue, hence an encoding rather than a replacement.
    """
    encoded = "".join(chr(b) if b in _PLAIN else f"_{b:02x}" for b in host.lower().encode())
    return f"compute_{encoded}"
