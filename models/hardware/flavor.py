"""What a flavor says about an instance's size and hardware."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.hardware.frozen_map import FrozenMap


@dataclass(frozen=True, slots=True)
class Flavor:
    """A named size with its extra specs; the specs are frozen on entry."""

    name: str
    vcpus: int
    memory_mib: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mib: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.extra_specs, FrozenMap):
            object.__setattr__(self, "extra_specs", FrozenMap(self.extra_specs))
