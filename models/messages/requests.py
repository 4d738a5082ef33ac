"""Requests of other services: one class a message, found by its task name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from models.errors import Rejected
from models.ids import is_uuid
from models.messages.base import Message, parse
from models.messages.catalogue import CATALOGUE, FlavorBody, ImageBody, Name

MAX_COUNT = 1_000
PREFIX = "conductor."


class Context(Message):
    """Who asks: ids only, never credentials."""

    project_id: Name
    user_id: str = ""
    request_id: str = ""


class Request(Message):
    """What every request carries; `deadline_s` bounds the whole operation."""

    task: ClassVar[str]

    context: Context
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86_400)] | None = None
    version: Annotated[int, Field(ge=1)] = 1

    @property
    def kind(self) -> str:
        """The operation's kind: the task name without its prefix."""
        return self.task.removeprefix(PREFIX)


class InstanceBody(Message):
    """The instance that a build asks for; flavor and image by name, by id or in full."""

    name: Name
    flavor: Name | FlavorBody
    image: Name | ImageBody | None = None
    block_devices: tuple[dict[str, Any], ...] = ()
    networks: tuple[dict[str, Any] | str, ...] = ()
    availability_zone: Name | None = None
    host: Name | None = None
    group: Name | None = None
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    scheduler_hints: dict[str, Any] = {}
    key_name: str | None = None
    security_groups: tuple[str, ...] = ()
    config_drive: bool = False

    @model_validator(mode="after")
    def _boots_from_something(self) -> InstanceBody:
        if self.image is None and not self.block_devices:
            raise ValueError("image or block_devices is needed to boot from")
        return self


class BuildInstances(Request):
    """Build `count` instances; their ids are uuid5(operation, index)."""

    task: ClassVar[str] = "conductor.build_instances"

    instance: InstanceBody
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1


class InstanceRequest(Request):
    """A request about one existing instance."""

    instance_id: str

    @field_validator("instance_id")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        if not is_uuid(value):
            raise ValueError("should be a UUID")
        return value.lower()


class DeleteInstance(InstanceRequest):
    """Delete an instance, whatever else is being done to it."""

    task: ClassVar[str] = "conductor.delete_instance"


class StartInstance(InstanceRequest):
    """Power a stopped instance on."""

    task: ClassVar[str] = "conductor.start_instance"


class StopInstance(InstanceRequest):
    """Power an active instance off, keeping its place on the host."""

    task: ClassVar[str] = "conductor.stop_instance"


class MigrateInstance(InstanceRequest):
    """Move an instance to another host, stopped on the way; then await confirmation."""

    task: ClassVar[str] = "conductor.migrate_instance"

    host: Name | None = None


class ResizeInstance(InstanceRequest):
    """Give an instance another flavor, on another host or its own; then await confirmation."""

    task: ClassVar[str] = "conductor.resize_instance"

    flavor: Name | FlavorBody
    host: Name | None = None


class ConfirmResize(InstanceRequest):
    """Keep the moved instance and give up what its source kept for a revert."""

    task: ClassVar[str] = "conductor.confirm_resize"


class RevertResize(InstanceRequest):
    """Put the moved instance back where it was, as it was."""

    task: ClassVar[str] = "conductor.revert_resize"


class LiveMigrateInstance(InstanceRequest):
    """Move a running instance to another host without stopping it."""

    task: ClassVar[str] = "conductor.live_migrate_instance"

    host: Name | None = None
    block_migration: bool | None = None


class RebuildInstance(InstanceRequest):
    """Make an instance anew where it is, from the same image or another."""

    task: ClassVar[str] = "conductor.rebuild_instance"

    image: Name | ImageBody


class EvacuateInstance(InstanceRequest):
    """Make an instance anew elsewhere because its host is dead."""

    task: ClassVar[str] = "conductor.evacuate_instance"

    host: Name | None = None
    force: bool = False


class ShelveInstance(InstanceRequest):
    """Stop an instance for long; with `offload` it gives up its host too."""

    task: ClassVar[str] = "conductor.shelve_instance"

    offload: bool = False


class UnshelveInstance(InstanceRequest):
    """Bring a shelved instance back, where it is or on a host chosen anew."""

    task: ClassVar[str] = "conductor.unshelve_instance"

    availability_zone: Name | None = None
    host: Name | None = None


class ReplayOperation(Request):
    """Take up an operation that has failed; with `dry_run` only say what would become of it."""

    task: ClassVar[str] = "conductor.replay_operation"

    operation_id: str
    dry_run: bool = False

    @field_validator("operation_id")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        if not is_uuid(value):
            raise ValueError("should be a UUID")
        return value.lower()


class DefineEntry(Request):
    """Create a flavor, image, aggregate, zone, server group or quota."""

    task: ClassVar[str] = "conductor.define_entry"

    entry: Literal["flavor", "image", "aggregate", "zone", "server_group", "quota"]
    body: dict[str, Any]

    @model_validator(mode="after")
    def _body_is_of_its_kind(self) -> DefineEntry:
        body = CATALOGUE[self.entry].model_validate_json(json.dumps(self.body))
        if not getattr(body, "name", None) and self.entry != "image":
            raise ValueError(f"a {self.entry} needs a name")
        return self


class RemoveEntry(Request):
    """Remove a flavor, image, aggregate, zone, server group or quota by name."""

    task: ClassVar[str] = "conductor.remove_entry"

    entry: Literal["flavor", "image", "aggregate", "zone", "server_group", "quota"]
    name: Name


REQUESTS: dict[str, type[Request]] = {
    kind.task: kind
    for kind in (
        BuildInstances,
        DeleteInstance,
        StartInstance,
        StopInstance,
        MigrateInstance,
        ResizeInstance,
        ConfirmResize,
        RevertResize,
        LiveMigrateInstance,
        RebuildInstance,
        EvacuateInstance,
        ShelveInstance,
        UnshelveInstance,
        ReplayOperation,
        DefineEntry,
        RemoveEntry,
    )
}
"""Task name to request class: what the queue `conductor` understands."""


def parse_request(task: str, body: Mapping[str, Any]) -> Request:
    """Return the request that `task` and its keyword arguments mean; raise `Rejected`.

    A version that is newer than ours is refused as such, before its fields are looked at:
    they may well be unknown here and right there.
    """
    kind = REQUESTS.get(task)
    if kind is None:
        raise Rejected("task_unknown", f"{task} is not a known task name", key="task")
    version = body.get("version", 1)
    if isinstance(version, int) and version > kind.current_version:
        raise Rejected(
            "version_unsupported",
            f"version is {version}: {task} is understood up to version {kind.current_version}",
            key="version",
        )
    return parse(kind, body)
