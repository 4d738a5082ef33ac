"""What an image says about the hardware its guest requires."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from models.hardware.frozen_map import FrozenMap

PropertyValue: TypeAlias = object
"""A JSON scalar, or a list of them (kept as a tuple, so that an image stays hashable)."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where the file of an image is, by URL, and what proves it; sizes are in bytes."""

    url: str
    format: Literal["raw", "qcow2"]
    checksum: str
    size_bytes: int
    virtual_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image's id, name and properties; the properties are frozen on entry.

    `min_memory_mib` and `min_disk_gib` are the least that a flavor must give it. One that is
    `on_volume` is on a volume already, from which the guest boots: no local root disk is made.
    Without a `source` it is a name only, which simulated hosts take.
    """

    id: str
    name: str = ""
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    min_memory_mib: int = 0
    min_disk_gib: int = 0
    on_volume: bool = False
    source: ImageSource | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.properties, FrozenMap):
            entries = {key: _frozen(value) for key, value in self.properties.items()}
            object.__setattr__(self, "properties", FrozenMap(entries))


def boots_from_volume(image: Image | None) -> bool:
    """Say whether a guest of the image, or of none, has its root disk on a volume."""
    return image is None or image.on_volume


def _frozen(value: PropertyValue) -> PropertyValue:
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted(value))
    if isinstance(value, Mapping):
        return FrozenMap({str(key): _frozen(item) for key, item in value.items()})
    return value
