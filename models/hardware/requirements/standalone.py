"""What is wrong with a flavor, or with an image, whatever the other one says.

A requirement that depends on the other side, such as a thread policy for dedicated CPUs, is not
refused here: only what no other side could put right.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.cpu_requirements import realtime_cpus
from models.hardware.requirements.guest_requirements import GuestRequirements, all_requirements
from models.hardware.requirements.numa_requirements import numa_maps, numa_nodes

_NO_IMAGE: Final = Image("")
_MANY: Final = 65_536
_NO_FLAVOR: Final = Flavor("", vcpus=_MANY, memory_mib=_MANY)
"""So large that it is never the flavor's size that an image is refused for."""

_UNREADABLE: Final = "_invalid"
"""How the codes of values end that mean nothing by themselves."""

_OF_A_FLAVOR: Final = frozenset(
    {
        "cpu_resources_conflict",
        "cpu_resources_mismatch",
        "cpu_topology_impossible",
        "hyperthreading_trait_conflict",
        "numa_cpu_duplicate",
        "numa_cpu_out_of_range",
        "numa_map_gap",
        "numa_memory_mismatch",
    }
)
_OF_AN_IMAGE: Final = frozenset({"cpu_topology_above_maximum", "numa_map_gap"})

_REALTIME: Final = "hw:cpu_realtime"


def refuse_flavor(flavor: Flavor) -> None:
    """Raise the first `Rejected` that a flavor meets with every image."""
    for refusal in _refusals(flavor, _NO_IMAGE):
        # A realtime flavor without a mask may leave it to the image.
        own = _is_value(refusal, flavor.extra_specs) and refusal.key != _REALTIME
        if own or refusal.code in _OF_A_FLAVOR:
            raise refusal


def refuse_image(image: Image) -> None:
    """Raise the first `Rejected` that an image meets with every flavor."""
    for refusal in _refusals(_NO_FLAVOR, image):
        if _is_value(refusal, image.properties) or refusal.code in _OF_AN_IMAGE:
            raise refusal


def _refusals(flavor: Flavor, image: Image) -> Iterator[Rejected]:
    """Yield all there is to complain of, the parts of the guest topology one by one too."""
    for answer in all_requirements(GuestRequirements(flavor, image)).values():
        if isinstance(answer, Rejected):
            yield answer
    # Masks must be readable even where nobody asks for realtime, as an image's choices must.
    specs = {**flavor.extra_specs, _REALTIME: "true", "hw:emulator_threads_policy": "share"}
    masked = replace(flavor, vcpus=_MANY, extra_specs=specs)
    for part in (
        lambda: numa_nodes(flavor, image),
        lambda: numa_maps(flavor, image),
        lambda: realtime_cpus(masked, image),
    ):
        refusal = _refusal(part)
        if refusal is not None:
            yield refusal


def _refusal(read: Callable[[], object]) -> Rejected | None:
    try:
        read()
    except Rejected as refusal:
        return refusal
    return None


def _is_value(refusal: Rejected, entries: Mapping[str, object]) -> bool:
    return refusal.code.endswith(_UNREADABLE) and refusal.key in entries
