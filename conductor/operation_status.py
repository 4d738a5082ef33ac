"""Operation status: what Flower and `AsyncResult` show, as a transaction leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conductor.store import Instance, Migration, OperationRecord, UnitOfWork
from models.hardware import Flavor
from models.json_types import Json
from models.lifecycle import MigrationKind

# Of a request without an instance: what names it, and nothing that describes or configures.
_NAMES: Final = (
    *("entry", "name", "aggregate", "images", "operation_id", "dry_run", "instance_id"),
    *("flavor", "image", "host", "availability_zone", "group", "count"),
)


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """An operation with the instance and the migration that it works on.

    `given_up` is the message of a dispatch whose reply is not waited for any more. `at` is the
    time of the transaction: it tells what ended just now from what is only looked at again.
    """

    record: OperationRecord
    at: float
    instance: Instance | None = None
    migration: Migration | None = None
    given_up: Json | None = None

    @property
    def ended_now(self) -> bool:
        """Whether this transaction ended the operation."""
        return self.record.ended_at == self.at


def operation_status_of(uow: UnitOfWork, operation_id: str) -> OperationStatus | None:
    """Return how a transaction sees an operation; costs one statement a record."""
    record = uow.operations.get(operation_id)
    if record is None:
        return None
    migration_id = record.data.get("migration_id")
    return OperationStatus(
        record=record,
        at=uow.now,
        instance=uow.instances.get(record.instance_id) if record.instance_id else None,
        migration=uow.migrations.get(migration_id) if migration_id else None,
    )


def arguments_of(status: OperationStatus) -> dict[str, Any]:
    """Return what tells a person which operation it is, what it is at, and where.

    What a caller may fill freely (metadata, hints, networks, …) is left out on purpose.
    """
    record, instance = status.record, status.instance
    arguments: dict[str, Any] = {}
    arguments |= _named(record.request) if instance is None else {"instance": instance.name}
    if not record.state.ended:
        arguments["step"] = record.step
    if status.migration is not None:
        arguments |= _moved(status.migration)
    if instance is not None:
        arguments |= {"host": instance.host, "flavor": _flavor(instance.flavor)}
        arguments["image"] = instance.image and (instance.image.name or instance.image.id)
        arguments["instance_id"] = instance.id
    return {**arguments, "replay_of": record.replay_of, "project": record.project_id}


def _moved(migration: Migration) -> dict[str, Any]:
    arguments: dict[str, Any] = {"source": migration.source}
    arguments["target"] = migration.target or migration.requested_host
    if migration.target_flavor != migration.source_flavor:
        arguments["new_flavor"] = _flavor(migration.target_flavor)
    if migration.kind is MigrationKind.LIVE_MIGRATION and migration.progress_percent:
        arguments["copied"] = f"{migration.progress_percent} %"
    return arguments


def _named(request: Json) -> dict[str, Any]:
    """Return what names a request; it may have been refused, so nothing is known of its shape."""
    inner = request.get("instance") or request.get("body")
    fields = {**request, **inner} if isinstance(inner, Mapping) else request
    return {name: _short(fields[name]) for name in _NAMES if fields.get(name) is not None}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "vcpus" in value:
            return _size(value["vcpus"], value.get("memory_mb"))
        return _short(value.get("name") or value.get("id") or "as described")
    if isinstance(value, list | tuple):
        return ", ".join(str(_short(item)) for item in value[:5])
    return value


def _flavor(flavor: Flavor) -> str:
    return f"{flavor.name} ({_size(flavor.vcpus, flavor.memory_mib)})"


def _size(vcpus: Any, memory_mib: Any) -> str:
    return f"{vcpus} vCPUs, {memory_mib} MiB"
