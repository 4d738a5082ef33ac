"""States of instances, operations and hosts, and which of them may follow which."""

from __future__ import annotations

from enum import StrEnum


class InstanceState(StrEnum):
    """What an instance is, between operations."""

    BUILDING = "building"
    ACTIVE = "active"
    STOPPED = "stopped"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    RESIZED = "resized"
    SHELVED = "shelved"
    SHELVED_OFFLOADED = "shelved_offloaded"
    ERROR = "error"
    DELETED = "deleted"


class TaskState(StrEnum):
    """What is being done to an instance; absent when no operation runs on it."""

    SCHEDULING = "scheduling"
    SPAWNING = "spawning"
    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    DELETING = "deleting"


class PowerState(StrEnum):
    """What the hypervisor says."""

    NOSTATE = "nostate"
    RUNNING = "running"
    SHUTDOWN = "shutdown"


class OperationState(StrEnum):
    """Where an operation is; the last four are ends, of which STUCK waits for a person."""

    ACCEPTED = "ACCEPTED"
    SCHEDULING = "SCHEDULING"
    CLAIMED = "CLAIMED"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    UNDOING = "UNDOING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    STUCK = "STUCK"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in ENDED


ENDED = frozenset(
    {
        OperationState.SUCCEEDED,
        OperationState.FAILED,
        OperationState.CANCELLED,
        OperationState.STUCK,
    }
)


class HostState(StrEnum):
    """What `hosts show` says of a host; derived, never stored."""

    UP = "up"
    DOWN = "down"
    DISABLED = "disabled"
    DEGRADED = "degraded"
