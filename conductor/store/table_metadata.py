"""What both adapters must know of each table of records: its key, its order, its nested fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from conductor.store import codecs
from conductor.store.codecs import Codec, enum
from conductor.store.records import (
    Allocation,
    CatalogueEntry,
    DeadLetter,
    Decision,
    Event,
    Heartbeat,
    Host,
    Identity,
    Instance,
    Migration,
    OperationRecord,
    OutboxRow,
    Provider,
    Registration,
    Removal,
)
from models.errors import Broken, Conflict
from models.hardware import Flavor
from models.lifecycle import (
    InstanceState,
    MigrationKind,
    MigrationState,
    OperationState,
    PowerState,
    TaskState,
)
from models.units import mib_to_gib_rounded_up

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Key: TypeAlias = tuple[Any, ...]
MANY: Final = (set, frozenset, list, tuple)


@dataclass(frozen=True)
class Shape(Generic[T]):
    """A table of frozen records.

    `sorted_by` is the field that tells old from new, the key decides between equals. `opaque`
    fields are values that only the SQL adapter takes apart. A `serial` table numbers its rows.
    `version` is the field that grows with every change, `unique` one that no two records share.
    """

    name: str
    record: type[T]
    key: tuple[str, ...] = ("id",)
    sorted_by: str | None = None
    codecs: Mapping[str, Codec] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    version: str = ""
    unique: str = ""

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The record's fields, in the order its constructor takes them."""
        return tuple(item.name for item in fields(self.record))

    @cached_property
    def values_of(self) -> Callable[[T], tuple[Any, ...]]:
        """Return the values of all fields of a record, in order."""
        return attrgetter(*self.fields)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The fields that sort records from oldest to newest."""
        return self.key if self.sorted_by is None else (self.sorted_by, *self.key)

    @cached_property
    def position_of(self) -> Callable[[T], Any]:
        """Return what a record is sorted by."""
        return attrgetter(*self.order)

    @cached_property
    def serial(self) -> bool:
        """Whether the database numbers the rows: the key is an integer that may be absent."""
        return self.record is Event

    @cached_property
    def _settling(self) -> tuple[tuple[int, Codec], ...]:
        return tuple(
            (index, self.codecs[name])
            for index, name in enumerate(self.fields)
            if name in self.codecs and self.codecs[name].settles
        )

    @cached_property
    def nested(self) -> frozenset[str]:
        """The fields that no single value of a column can stand for."""
        coded = {name for name, codec in self.codecs.items() if not codec.scalar}
        return frozenset(coded) | self.opaque

    @cached_property
    def key_of(self) -> Callable[[T], Key]:
        """Return the key of a record, always a tuple."""
        getter = attrgetter(*self.key)
        if len(self.key) > 1:
            return getter
        return lambda value: (getter(value),)

    @cached_property
    def version_of(self) -> Callable[[T], int]:
        """Return the version of a record of a table that has them."""
        return attrgetter(self.version)

    def key_values(self, key: Iterable[str]) -> Key:
        """Return a key as the records have it; raise `Broken` when parts are missing."""
        values: Key = tuple(key)
        if len(values) != len(self.key):
            raise Broken("key_invalid", f"a key of {self.name} is {', '.join(self.key)}")
        return (int(values[0]),) if self.serial else values

    def check_fields(self, equals: Mapping[str, Any]) -> None:
        """Raise `Broken` (`field_unknown`) for a field that `where` cannot compare."""
        for name in equals:
            if name not in self.fields or name in self.nested:
                raise Broken("field_unknown", f"{self.name} cannot be asked for {name}")

    def exists(self, keys: Sequence[Key]) -> Conflict:
        """Return the answer to adding these when the key of one is taken."""
        name = "/".join(map(str, keys[0]))
        which = name if len(keys) == 1 else f"one of {name} and {len(keys) - 1} more"
        return Conflict("exists", f"{self.name}: {which} exists already", table=self.name, id=name)

    def missing(self, key: Key) -> Broken:
        """Return the answer to saving what is not there."""
        name = "/".join(map(str, key))
        return Broken("missing", f"{self.name}: there is no {name}", table=self.name, id=name)

    def settled(self, value: T, before: T | None) -> T:
        """Return the record as a database would give it back: JSON turned into plain values.

        What is the same object as in `before` has been settled already.
        """
        if not self._settling:
            return value
        values = list(self.values_of(value))
        old: tuple[Any, ...] = () if before is None else self.values_of(before)
        for index, codec in self._settling:
            item = values[index]
            if item is not None and not (old and old[index] is item):
                values[index] = codec.decode(codec.encode(item))
        return self.record(*values)


def disk_gb_of(flavor: Flavor) -> int:
    """Return the GiB of disk that quotas count: root, ephemeral and swap, rounded up."""
    return flavor.root_gb + flavor.ephemeral_gb + mib_to_gib_rounded_up(flavor.swap_mib)


OPERATIONS: Final = Shape(
    "operations",
    OperationRecord,
    sorted_by="created_at",
    codecs={
        "state": enum(OperationState),
        "request": codecs.JSON,
        "data": codecs.JSON,
        "waiting": codecs.JSON,
        "attempts": codecs.JSON_TUPLE,
        "error": codecs.JSON,
    },
)

INSTANCES: Final = Shape(
    "instances",
    Instance,
    sorted_by="created_at",
    codecs={
        "state": enum(InstanceState),
        "task_state": enum(TaskState),
        "power_state": enum(PowerState),
        "flavor": codecs.FLAVOR,
        "image": codecs.IMAGE,
        "request_spec": codecs.JSON,
        "placement": codecs.PLACEMENT,
        "fault": codecs.JSON,
    },
)

HOSTS: Final = Shape(
    "hosts",
    Host,
    key=("name",),
    sorted_by="created_at",
    codecs={
        "inventory": codecs.INVENTORY,
        "used": codecs.JSON,
        "traits": codecs.JSON_TUPLE,
        "aggregates": codecs.JSON_TUPLE,
        "own_traits": codecs.JSON_TUPLE,
        "reported": codecs.JSON,
        "disabled_reason": codecs.FREE_TEXT,
        "degraded": codecs.FREE_TEXT,
    },
    opaque=frozenset({"topology"}),
    version="version",
)

PROVIDERS: Final = Shape(
    "providers",
    Provider,
    codecs={
        "inventories": codecs.INVENTORY,
        "used": codecs.JSON,
        "traits": codecs.NAMES,
        "aggregates": codecs.NAMES,
    },
    version="generation",
    unique="name",
)

MIGRATIONS: Final = Shape(
    "migrations",
    Migration,
    sorted_by="created_at",
    codecs={
        "kind": enum(MigrationKind),
        "state": enum(MigrationState),
        "source_flavor": codecs.FLAVOR,
        "target_flavor": codecs.FLAVOR,
        "source_placement": codecs.PLACEMENT,
        "target_placement": codecs.PLACEMENT,
        "error": codecs.JSON,
    },
)

ALLOCATIONS: Final = Shape(
    "allocations", Allocation, key=("consumer_id", "provider"), codecs={"amounts": codecs.JSON}
)

HEARTBEATS: Final = Shape(
    "heartbeats",
    Heartbeat,
    key=("name",),
    sorted_by="seen_at",
    codecs={"work": codecs.JSON_TUPLE, "obeys": codecs.JSON},
)

IDENTITY: Final = Shape("identity", Identity)

REGISTRATIONS: Final = Shape(
    "registrations",
    Registration,
    key=("host",),
    codecs={
        "unexpected": codecs.JSON_TUPLE,
        "refused": codecs.JSON,
        "notes": codecs.JSON_TUPLE,
    },
)

REMOVALS: Final = Shape("removals", Removal, sorted_by="at")

EVENTS: Final = Shape("events", Event, sorted_by="at", codecs={"detail": codecs.FREE_TEXT})

DECISIONS: Final = Shape("decisions", Decision, sorted_by="at", codecs={"detail": codecs.JSON})

OUTBOX: Final = Shape(
    "outbox",
    OutboxRow,
    sorted_by="created_at",
    codecs={"body": codecs.JSON, "shown": codecs.FREE_TEXT},
)

DEAD_LETTERS: Final = Shape(
    "dead_letters",
    DeadLetter,
    sorted_by="at",
    codecs={
        "task": codecs.FREE_TEXT,
        "reason": codecs.FREE_TEXT,
        "body": codecs.FREE_TEXT,
        "headers": codecs.JSON,
    },
)

CATALOGUE: Final = Shape(
    "catalogue",
    CatalogueEntry,
    key=("kind", "name"),
    sorted_by="created_at",
    codecs={"body": codecs.JSON},
)
