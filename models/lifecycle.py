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
    MIGRATING = "migrating"
    RESIZING = "resizing"
    CONFIRMING = "confirming"
    REVERTING = "reverting"
    REBUILDING = "rebuilding"
    EVACUATING = "evacuating"
    SHELVING = "shelving"
    UNSHELVING = "unshelving"
    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    REBOOTING = "rebooting"
    PAUSING = "pausing"
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    RESUMING = "resuming"
    SNAPSHOTTING = "snapshotting"
    DELETING = "deleting"


class PowerState(StrEnum):
    """What the hypervisor says.

    Paused is in memory, suspended is saved on the disk of the host; crashed stopped by itself.
    """

    NOSTATE = "nostate"
    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"


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


class MigrationKind(StrEnum):
    """Why an instance moves."""

    MIGRATION = "migration"
    RESIZE = "resize"
    LIVE_MIGRATION = "live-migration"
    EVACUATION = "evacuation"


class MigrationState(StrEnum):
    """How far a move is; it holds something on its source until one of the last four."""

    ACCEPTED = "accepted"
    MIGRATING = "migrating"
    FINISHED = "finished"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    COMPLETED = "completed"
    ERROR = "error"


UNFINISHED = frozenset({MigrationState.ACCEPTED, MigrationState.MIGRATING, MigrationState.FINISHED})


class HostState(StrEnum):
    """What `hosts show` says of a host; derived, never stored."""

    UP = "up"
    DOWN = "down"
    DISABLED = "disabled"
    DEGRADED = "degraded"
