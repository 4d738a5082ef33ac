"""What the store keeps: frozen records. Times are Unix seconds, JSON values are plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conductor.store.inventory_record import Inventory as Inventory  # noqa: PLC0414 - a record, kept apart for its length
from models.hardware import Flavor, FrozenMap, HostTopology, Image, Placement
from models.json_types import Json
from models.lifecycle import (
    UNFINISHED,
    InstanceState,
    MigrationKind,
    MigrationState,
    OperationState,
    PowerState,
    TaskState,
)

WAITS_ON_HOST: Final = "compute:"
"""Prefix of `waiting_on` where an operation waits for a host, before its name."""
WAITS_ON_SCHEDULER: Final = "scheduler"
DISPATCHES: Final = (WAITS_ON_HOST, WAITS_ON_SCHEDULER)


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """One operation: its request, the step it is at, and its typed state as JSON.

    `sequence` counts its dispatches (only a reply to the newest counts); `waiting` is the message
    of the one in flight, to be sent again unchanged; `asked_at` is when it was first sent,
    `wake_at` when the reaper looks at it. `attempts` lists what was tried and why it failed.
    """

    id: str
    kind: str
    definition_version: int
    state: OperationState
    step: str
    project_id: str
    user_id: str
    request_id: str
    request: Json
    digest: str
    data: Json
    created_at: float
    updated_at: float
    undoing: bool = False  # once it has ended: it went back, to its start unless STUCK
    resume_step: str | None = None
    attempt: int = 1
    tries: int = 0
    sequence: int = 0
    waiting: Json | None = None
    waiting_on: str | None = None
    attempts: tuple[Json, ...] = ()
    error: Json | None = None
    cancel: str | None = None
    instance_id: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    replay_of: str | None = None
    reply_to: str | None = None
    children_left: int = 0
    wake_at: float | None = None
    asked_at: float | None = None
    deadline_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Operations of one kind in one state that wait for the same: how many, since when.

    `oldest_at` is when the first of them was accepted.
    """

    kind: str
    state: OperationState
    waiting_on: str | None
    count: int
    oldest_at: float


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance with its own copy of flavor and image: editing those changes no accounting.

    `host` and `placement` are written by the claim, in one transaction with the host's use.
    `operation_id` is the one operation that runs on it; `fence` grows with every instruction.
    """

    id: str
    name: str
    project_id: str
    user_id: str
    state: InstanceState
    flavor: Flavor
    image: Image | None
    request_spec: Json
    created_at: float
    updated_at: float
    task_state: TaskState | None = None
    power_state: PowerState = PowerState.NOSTATE
    host: str | None = None
    group: str | None = None
    availability_zone: str | None = None
    placement: Placement | None = None
    fault: Json | None = None
    fence: int = 0
    operation_id: str | None = None
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """A move of an instance: what it leaves, where it goes, and which side holds what.

    The source's allocation belongs to the migration, the target's to the instance. Until
    `switched` the instance lives on the source, then on the target. `requested_host` is the only
    target allowed, where one was named. `progress_percent` is of the copy of a live migration.
    """

    id: str
    instance_id: str
    kind: MigrationKind
    state: MigrationState
    operation_id: str
    source: str
    source_flavor: Flavor
    target_flavor: Flavor
    created_at: float
    updated_at: float
    source_placement: Placement | None = None
    target: str | None = None
    target_placement: Placement | None = None
    requested_host: str | None = None
    same_host: bool = False
    switched: bool = False
    was_running: bool = True
    progress_percent: int = 0
    error: Json | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it may still hold something on its source."""
        return self.state in UNFINISHED


def nothing() -> Mapping[str, Any]:
    """Return the mapping that has nothing in it."""
    return _NOTHING


_NOTHING: Final[Mapping[str, Any]] = FrozenMap({})


@dataclass(frozen=True, slots=True)
class Provider:
    """One resource provider: its place in a tree, what it has and what is in use of it.

    `id` is a UUID, `name` is unique among all providers; `root_id` is its own where it has no
    parent. `generation` grows with every change of inventories, traits, aggregates and use.
    Hosts are the roots of their trees and have their own rows (`Host`); these are of all others.
    """

    id: str
    name: str
    parent_id: str | None = None
    root_id: str = ""
    generation: int = 0
    inventories: Mapping[str, Inventory] = field(default_factory=nothing)
    used: Mapping[str, int] = field(default_factory=nothing)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Host:
    """One compute host: hardware with its NUMA use, inventories and what is claimed of them.

    `version` grows with every change of use; a claim is valid only under the version it read.
    Whether it is up is not here: heartbeats are rows of their own, so that they touch no claim.
    A host is the root of a tree of resource providers, `version` its generation there; it is
    known by `provider_id` (UUID) and in `aggregates` (UUIDs) of providers. Of `traits` it told
    itself of `own_traits`. `reported` is hardware that contradicts its guests, if there is any.
    """

    name: str
    topology: HostTopology
    inventory: Mapping[str, Inventory]
    used: Mapping[str, int] = field(default_factory=dict)
    version: int = 1
    hypervisor: str = ""
    traits: tuple[str, ...] = ()
    cell_id: str = "cell1"
    boot_id: str | None = None
    enabled: bool = True
    disabled_reason: str | None = None
    forced_down: bool = False
    degraded: str | None = None
    instances: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    provider_id: str = ""
    aggregates: tuple[str, ...] = ()
    own_traits: tuple[str, ...] = ()
    reported: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one consumer (`instance`, `migration`) holds of one provider, by resource class.

    `provider` is the provider's name: a host's own name where it is the root of a host.
    """

    consumer_id: str
    provider: str
    amounts: Mapping[str, int]
    consumer_kind: str = "instance"
    project_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a process or host was last heard of. `kind` is `compute`, `conductor`, `scheduler`.

    Of a host, `boot_id` is the life of its worker that spoke, `sequence` the number of the newest
    report of that life, and `listed` that of the newest list of guests that was taken in: older
    ones are old news, whatever any clock says. `reported_at` is used by the conductors' echo.
    Its newest canary left at `called_at`, the oldest unheard at `unheard_since` (0: none). `obeys`
    is the database that it says it obeys ({database, generation, outdated}).
    """

    name: str
    kind: str
    seen_at: float
    reported_at: float = 0.0
    called_at: float = 0.0
    unheard_since: float = 0.0
    work: tuple[Json, ...] = ()
    boot_id: str = ""
    sequence: int = 0
    listed: int = 0
    obeys: Json | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells this database from every other, and how far it has got; there is one.

    `generation` grows while conductors run: a copy that was restored has an older one. It was
    raised at `raised_at`.
    """

    id: str
    generation: int = 1
    raised_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Registration:
    """Who serves a host's name, and what that worker has which it should not.

    The ids are those of its registration message. `unexpected` are the first of the guests that are
    left alone ({name, fence, reason}), `unexpected_count` how many there are. `refused` is the
    last other worker that asked ({host, boot_id, machine_id, at, reason}), `notes` are the
    worker's own ({code, message}). `troubled`: there is something to look at.
    """

    host: str
    worker_id: str
    machine_id: str
    machine_boot: str
    boot_id: str
    boot: int
    registered_at: float
    unexpected: tuple[Json, ...] = ()
    unexpected_count: int = 0
    refused: Json | None = None
    notes: tuple[Json, ...] = ()
    troubled: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """That an operation has had an instance's guest removed from a host, and under which fence.

    The only reason to remove a guest that turns up again: under that fence. `id` is `removal_id`.
    """

    id: str
    instance_id: str
    host: str
    operation_id: str
    fence: int
    at: float


@dataclass(frozen=True, slots=True)
class Event:
    """One line of an operation's story."""

    operation_id: str
    at: float
    event: str
    detail: str
    instance_id: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Why the scheduler chose what it chose: counts and examples, not one row a host."""

    id: str
    operation_id: str
    instance_id: str
    at: float
    host: str | None
    detail: Json


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, with its reason and origin."""

    id: str
    at: float
    queue: str
    task: str
    reason: str
    body: str
    headers: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message of a committed transaction that may not have been published yet."""

    id: str
    created_at: float
    queue: str
    task: str
    body: Json
    root_id: str | None = None
    parent_id: str | None = None
    shown: str = ""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A flavor, image, aggregate, zone, server group or quota; `body` is its message as JSON."""

    kind: str
    name: str
    body: Json
    created_at: float
