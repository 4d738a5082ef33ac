"""What operators define ahead of requests: flavors, images, aggregates, zones, groups, quotas."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from models.messages.base import Message
from models.messages.name_rules import Host, Name, NameKey

Limit = Annotated[int, Field(ge=-1, le=2**63 - 1)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _without_spaces_around(key: str) -> str:
    if not key or key != key.strip():
        raise ValueError("should have no space before or behind it")
    return key


# One more space and the key would be another one, which nobody reads.
Key = Annotated[str, AfterValidator(_without_spaces_around)]


class FlavorBody(Message):
    """The size of an instance; `memory_mb` and `swap_mb` are MiB, disks GiB."""

    name: Name | None = None
    vcpus: Annotated[int, Field(ge=1, le=4096)]
    memory_mb: Annotated[int, Field(ge=1, le=2**31 - 1)]
    root_gb: Count = 0
    ephemeral_gb: Count = 0
    swap_mb: Count = 0
    extra_specs: dict[Key, str] = {}


ImageFormat: TypeAlias = Literal["raw", "qcow2"]
"""What hosts take: formats whose content cannot name files of the host once they are checked."""

Checksum: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Bytes = Annotated[int, Field(ge=1, le=2**63 - 1)]


class ImageBody(Message):
    """An image by id, with the properties that constrain where it can run, and its file.

    The file is at `source`: a URL (`file`, `http`, `https`, or `store` for the image store).
    `size_bytes` and `checksum` are of the file as it is there, `virtual_size_bytes` is the size of
    a disk made from it. Without a source the image is a name only (simulated hosts).
    """

    id: Name
    name: Name | None = None
    properties: dict[Key, Any] = {}
    min_disk_gb: Count = 0
    min_memory_mb: Count = 0
    source: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    format: ImageFormat | None = None
    checksum: Checksum | None = None
    size_bytes: Bytes | None = None
    virtual_size_bytes: Bytes | None = None


class AggregateBody(Message):
    """Hosts that share metadata, which flavors and images can ask for."""

    name: Name
    hosts: tuple[Host, ...] = ()
    metadata: dict[str, str] = {}


COUNT_LIMIT = "max_instances_per_host"
BUSY_LIMIT = "max_io_ops_per_host"
"""Metadata of aggregates that limits what their hosts have, or do, at once: whole numbers."""

OWN_MULTIPLIER = "_weight_multiplier"
"""What metadata of aggregates ends with that gives their hosts a weigher's multiplier: a number."""
WEIGHER_NAMES = (
    "cpus_left",
    "devices_left_alone",
    "disk_left",
    "few_instances",
    "homes_left_alone",
    "in_use",
    "less_busy",
    "memory_left",
    "own_cell",
    "own_host",
    "room_left",
    "room_to_grow",
    "soft_group",
    "trustworthy",
    "usual_room_kept",
)
"""The weighers that metadata may name, beside those of plugins."""
WEIGHER_PLUGINS = "conductor.weighers"
"""The entry points under which plugins have weighers; conductor and scheduler know them alike."""


class ZoneBody(Message):
    """An availability zone: the hosts that users know by one name."""

    name: Name
    hosts: tuple[Host, ...] = ()


class ServerGroupBody(Message):
    """A rule over the hosts of the instances that name the group."""

    name: Name
    policy: Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
    max_server_per_host: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class LimitsBody(Message):
    """How much may be used in all; -1 means unlimited.

    `classes` limits resource classes such as `PCPU` or a `CUSTOM_` one; what is not named is not
    limited.
    """

    instances: Limit = -1
    cores: Limit = -1
    memory_mb: Limit = -1
    disk_gb: Limit = -1
    classes: dict[NameKey, Limit] = {}


class QuotaBody(LimitsBody):
    """Limits of a project, `name` being its id, and of some of its users by their ids."""

    name: Name
    users: dict[NameKey, LimitsBody] = {}


CATALOGUE: dict[str, type[Message]] = {
    "flavor": FlavorBody,
    "image": ImageBody,
    "aggregate": AggregateBody,
    "zone": ZoneBody,
    "server_group": ServerGroupBody,
    "quota": QuotaBody,
}
"""Kind of catalogue entry to the message that defines it; the key of an entry is (kind, name)."""
