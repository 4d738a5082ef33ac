"""Requests of other services: one class a message, found by its task name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from models.errors import Rejected
from models.messages.base import Message, Versioned, parse
from models.messages.catalogue import CATALOGUE, Count, FlavorBody, ImageBody
from models.messages.guests.console_parts import PartBytes
from models.messages.guests.guest_copies import CopyPolicy
from models.messages.name_rules import Host, Name, Words
from models.messages.request_fields import Context, Described, Id
from models.messages.versions import CONVERTERS, Converters
from models.secrets import secret_fields

MAX_COUNT = 1_000
PREFIX = "conductor."


Entry: TypeAlias = Literal["flavor", "image", "aggregate", "zone", "server_group", "quota"]


class Request(Versioned):
    """What every request carries; `deadline_s` bounds the whole operation."""

    context: Context
    deadline_s: Annotated[
        Annotated[float, Field(gt=0, le=7 * 86_400)] | None,
        Field(description="Seconds after which the operation is undone and fails."),
    ] = None

    @property
    def kind(self) -> str:
        """The operation's kind: the task name without its prefix."""
        return self.task.removeprefix(PREFIX)


class BlockDeviceBody(Message):
    """A volume of an instance; the one with boot index 0 is booted from."""

    volume_id: Annotated[Name, Field(description="The volume.")]
    boot_index: Annotated[
        Annotated[int, Field(ge=-1, le=64)] | None,
        Field(description="0 to boot from it; -1 or nothing for a volume of data."),
    ] = None


class InstanceBody(Message):
    """The instance that a build asks for; flavor and image by name, by id or in full."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["image"], "properties": {"image": {"not": {"type": "null"}}}},
                {"required": ["block_devices"], "properties": {"block_devices": {"minItems": 1}}},
            ]
        }
    )

    name: Annotated[
        Name, Field(description="Of the instance; of several, numbered: `name-1`, `name-2`, …")
    ]
    flavor: Annotated[Name | FlavorBody, Field(description="By name, or in full.")]
    image: Annotated[
        Name | ImageBody | None,
        Field(description="By id or name, or in full; not needed to boot from `block_devices`."),
    ] = None
    block_devices: Annotated[
        tuple[BlockDeviceBody, ...],
        Field(description="Volumes to boot from instead of an image."),
    ] = ()
    networks: Annotated[
        tuple[Described | str, ...],
        Field(description="Nothing, or `none`: there are no networks yet."),
    ] = ()
    availability_zone: Annotated[Name | None, Field(description="Only hosts of this zone.")] = None
    host: Annotated[Host | None, Field(description="This host and no other.")] = None
    group: Annotated[Name | None, Field(description="Server group whose rule it follows.")] = None
    metadata: Annotated[dict[str, str], Field(description="Kept with the instance.")] = {}
    tags: Annotated[tuple[Words, ...], Field(description="Kept with the instance.")] = ()
    scheduler_hints: Annotated[
        dict[str, Any], Field(description="Requirements about other instances: `same_host`, …")
    ] = {}
    key_name: Annotated[
        Words | None, Field(description="Refused: no host puts keys into its guests.")
    ] = None
    security_groups: Annotated[
        tuple[Words, ...], Field(description="Refused: there are no networks to filter.")
    ] = ()
    config_drive: Annotated[
        bool, Field(description="Refused where true: no host gives its guests a config drive.")
    ] = False

    @model_validator(mode="after")
    def _boots_from_something(self) -> InstanceBody:
        if self.image is None and not self.block_devices:
            raise ValueError("image or block_devices is needed to boot from")
        return self


class BuildInstances(Request):
    """Build `count` instances; their ids are uuid5(operation, index)."""

    task: ClassVar[str] = "conductor.build_instances"

    instance: InstanceBody
    count: Annotated[
        int, Field(ge=1, le=MAX_COUNT, description="How many, placed all or none.")
    ] = 1


class InstanceRequest(Request):
    """A request about one existing instance."""

    instance_id: Annotated[Id, Field(description="The instance.")]


class DeleteInstance(InstanceRequest):
    """Delete an instance, whatever else is being done to it."""

    task: ClassVar[str] = "conductor.delete_instance"


class StartInstance(InstanceRequest):
    """Power a stopped instance on."""

    task: ClassVar[str] = "conductor.start_instance"


class StopInstance(InstanceRequest):
    """Power an active instance off, keeping its place on the host."""

    task: ClassVar[str] = "conductor.stop_instance"


class PauseInstance(InstanceRequest):
    """Let an active instance stand still, in memory."""

    task: ClassVar[str] = "conductor.pause_instance"


class UnpauseInstance(InstanceRequest):
    """Let a paused instance go on."""

    task: ClassVar[str] = "conductor.unpause_instance"


class SuspendInstance(InstanceRequest):
    """Save the memory of an active instance and stop it, keeping its place on the host."""

    task: ClassVar[str] = "conductor.suspend_instance"


class ResumeInstance(InstanceRequest):
    """Let a suspended instance go on from its saved memory."""

    task: ClassVar[str] = "conductor.resume_instance"


class RebootInstance(InstanceRequest):
    """Start an instance anew where it is."""

    task: ClassVar[str] = "conductor.reboot_instance"

    hard: Annotated[bool, Field(description="At once, without asking the guest first.")] = False


TargetHost: TypeAlias = Annotated[
    Host | None, Field(description="This host; the scheduler chooses where none is named.")
]


class MigrateInstance(InstanceRequest):
    """Move an instance to another host, stopped on the way; then await confirmation."""

    task: ClassVar[str] = "conductor.migrate_instance"

    host: TargetHost = None


class ResizeInstance(InstanceRequest):
    """Give an instance another flavor, on another host or its own; then await confirmation."""

    task: ClassVar[str] = "conductor.resize_instance"

    flavor: Annotated[Name | FlavorBody, Field(description="The new one, by name or in full.")]
    host: TargetHost = None


class ConfirmResize(InstanceRequest):
    """Keep the moved instance and give up what its source kept for a revert."""

    task: ClassVar[str] = "conductor.confirm_resize"


class RevertResize(InstanceRequest):
    """Put the moved instance back where it was, as it was."""

    task: ClassVar[str] = "conductor.revert_resize"


class LiveMigrateInstance(InstanceRequest):
    """Move a running instance to another host without stopping it."""

    task: ClassVar[str] = "conductor.live_migrate_instance"

    host: TargetHost = None
    block_migration: Annotated[
        bool | None, Field(description="Copy the disk too, or not; chosen where not given.")
    ] = None
    policy: Annotated[
        CopyPolicy, Field(description="Bandwidth, pause, time limit and what then.")
    ] = CopyPolicy()


class RebuildInstance(InstanceRequest):
    """Make an instance anew where it is, from the same image or another."""

    task: ClassVar[str] = "conductor.rebuild_instance"

    image: Annotated[
        Name | ImageBody, Field(description="The new one or the same, by id or name, or in full.")
    ]


class EvacuateInstance(InstanceRequest):
    """Make an instance anew elsewhere because its host is dead."""

    task: ClassVar[str] = "conductor.evacuate_instance"

    host: TargetHost = None
    force: Annotated[
        bool, Field(description="Skip every rule about hosts but their room; needs `host`.")
    ] = False


class ShelveInstance(InstanceRequest):
    """Stop an instance for long; with `offload` it gives up its host too."""

    task: ClassVar[str] = "conductor.shelve_instance"

    offload: Annotated[bool, Field(description="Give up the host too.")] = False


class UnshelveInstance(InstanceRequest):
    """Bring a shelved instance back, where it is or on a host chosen anew."""

    task: ClassVar[str] = "conductor.unshelve_instance"

    availability_zone: Annotated[
        Name | None, Field(description="Only hosts of this zone, if it was offloaded.")
    ] = None
    host: TargetHost = None


class SnapshotInstance(InstanceRequest):
    """Make an image of the root disk of an instance, which goes on as it was."""

    task: ClassVar[str] = "conductor.snapshot_instance"

    image_name: Annotated[
        Name | None, Field(description="Of the image; the instance's with -snapshot otherwise.")
    ] = None


class ReadConsole(Request):
    """Read a part of what an instance has written to its console, whatever else is going on."""

    task: ClassVar[str] = "conductor.read_console"

    guest_id: Annotated[Id, Field(description="The instance.")]
    offset: Annotated[Count | None, Field(description="From this byte on; else the end.")] = None
    most_bytes: Annotated[PartBytes, Field(description="At most so many.")] = 16_384


class DestroyOrphan(Request):
    """Remove a guest that no instance has on its host, as `instances orphans list` shows it."""

    task: ClassVar[str] = "conductor.destroy_orphan"

    host: Annotated[Host, Field(description="The host that has it.")]
    guest_id: Annotated[Id, Field(description="The id of the guest.")]


class CacheImages(Request):
    """Have images on every host of an aggregate that is up, before instances need them."""

    task: ClassVar[str] = "conductor.cache_images"

    aggregate: Annotated[Name, Field(description="The aggregate's name.")]
    images: Annotated[tuple[Name, ...], Field(min_length=1, description="By id or name.")]


class ReplayOperation(Request):
    """Take up an operation that has failed; with `dry_run` only say what would become of it."""

    task: ClassVar[str] = "conductor.replay_operation"

    operation_id: Annotated[Id, Field(description="The operation that has failed.")]
    dry_run: Annotated[bool, Field(description="Only answer what would become of it.")] = False


class _AnyEntry:
    """Describes the body of an entry in schemas; which kind it must be is checked beside it."""

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        kinds = CATALOGUE.values()
        return {"anyOf": [handler(kind.__pydantic_core_schema__) for kind in kinds]}


class DefineEntry(Request):
    """Create a flavor, image, aggregate, zone, server group or quota."""

    task: ClassVar[str] = "conductor.define_entry"

    entry: Annotated[Entry, Field(description="Kind of entry.")]
    body: Annotated[
        dict[str, Any], _AnyEntry(), Field(description="What the entry says, by its kind.")
    ]

    @model_validator(mode="after")
    def _body_is_of_its_kind(self) -> DefineEntry:
        body = CATALOGUE[self.entry].model_validate_json(json.dumps(self.body))
        if not getattr(body, "name", None) and self.entry != "image":
            raise ValueError(f"a {self.entry} needs a name")
        return self


class RemoveEntry(Request):
    """Remove a flavor, image, aggregate, zone, server group or quota by name."""

    task: ClassVar[str] = "conductor.remove_entry"

    entry: Annotated[Entry, Field(description="Kind of entry.")]
    name: Annotated[Name, Field(description="Its name; of an image, its id.")]


REQUESTS: dict[str, type[Request]] = {
    kind.task: kind
    for kind in (
        BuildInstances,
        DeleteInstance,
        StartInstance,
        StopInstance,
        PauseInstance,
        UnpauseInstance,
        SuspendInstance,
        ResumeInstance,
        RebootInstance,
        MigrateInstance,
        ResizeInstance,
        ConfirmResize,
        RevertResize,
        LiveMigrateInstance,
        RebuildInstance,
        EvacuateInstance,
        ShelveInstance,
        UnshelveInstance,
        SnapshotInstance,
        ReadConsole,
        CacheImages,
        DestroyOrphan,
        ReplayOperation,
        DefineEntry,
        RemoveEntry,
    )
}
"""Task name to request class: what the queue `conductor` understands."""


def parse_request(
    task: str,
    body: Mapping[str, Any],
    kinds: Mapping[str, type[Request]] = REQUESTS,
    converters: Converters = CONVERTERS,
) -> Request:
    """Return the request that `task` and its keyword arguments mean; raise `Rejected`.

    So is a secret among what a request may name freely (`secret_refused`): its value would be
    stored and sent on, so the guest has to fetch it by itself.
    """
    kind = kinds.get(task)
    if kind is None:
        raise Rejected("task_unknown", f"{task} is not a known task name", key="task")
    request = parse(kind, body, converters)
    secret = next(secret_fields(body), None)
    if secret is not None:
        message = f"{secret} is named like a secret: requests carry none, name where to fetch it"
        raise Rejected("secret_refused", message, key=secret)
    return request
