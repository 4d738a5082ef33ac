"""How many sockets, cores and threads a guest sees: what is preferred, allowed and best."""

from dataclasses import dataclass
from typing import Final

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.parsing import values_of, whole_number, wrong

UNLIMITED: Final = 65_536
"""The maximum where nobody sets one."""

PARTS: Final = ("sockets", "cores", "threads")


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """Sockets, cores a socket, threads a core; 0 in a preference is no preference."""

    sockets: int
    cores: int
    threads: int


@dataclass(frozen=True, slots=True)
class TopologyBounds:
    """What is preferred, and what must not be exceeded."""

    preferred: CpuTopology
    maximum: CpuTopology


def topology_bounds(flavor: Flavor, image: Image) -> TopologyBounds:
    """Return the preferred and the greatest topology that flavor and image allow together.

    An image may lower the flavor's maximum but not raise it. Any preference of the image
    replaces all of the flavor's. A flavor's preference above a maximum is dropped as a whole,
    an image's is refused.
    """
    maximum = tuple(_maximum(part, flavor, image) for part in PARTS)
    sides = [(part, *_sides(f"cpu_{part}", flavor, image)) for part in PARTS]
    ours = tuple(flavors for _, flavors, _ in sides)
    theirs = tuple(images for _, _, images in sides)
    for part, count, most in zip(PARTS, theirs, maximum, strict=True):
        if count > most:
            rule = f"at most {most} {part} are allowed"
            raise wrong("cpu_topology_above_maximum", f"hw_cpu_{part}", count, rule)
    if any(count > most for count, most in zip(ours, maximum, strict=True)):
        ours = (0, 0, 0)
    preferred = theirs if any(theirs) else ours
    return TopologyBounds(CpuTopology(*preferred), CpuTopology(*maximum))


def best_topology(vcpus: int, bounds: TopologyBounds, allow_threads: bool = True) -> CpuTopology:
    """Return the topology of exactly so many vCPUs that serves the guest best.

    Most preferences met comes first, then most sockets times cores, then most sockets.
    Without `allow_threads` every core has one. Raises `Rejected` (`cpu_topology_impossible`)
    where the maximum leaves none.
    """
    most, wanted = bounds.maximum, bounds.preferred
    max_threads = most.threads if allow_threads else 1
    best: tuple[int, int, int, int] | None = None
    divisors = _divisors(vcpus)
    for threads in divisors:
        if threads > max_threads:
            break
        whole = vcpus // threads
        for sockets in divisors:
            if sockets > most.sockets or sockets > whole:
                break
            cores, rest = divmod(whole, sockets)
            if rest or cores > most.cores:
                continue
            met = (sockets == wanted.sockets) + (cores == wanted.cores)
            rank = (met + (threads == wanted.threads), whole, sockets, threads)
            if best is None or rank > best:
                best = rank
    if best is None:
        raise _impossible(vcpus, most, max_threads)
    _, whole, sockets, threads = best
    return CpuTopology(sockets, whole // sockets, threads)


def _maximum(part: str, flavor: Flavor, image: Image) -> int:
    granted, wanted = _sides(f"cpu_max_{part}", flavor, image)
    if granted and wanted > granted:
        rule = f"the image wants {wanted}, and an image may only lower it"
        raise wrong("cpu_topology_conflict", f"hw:cpu_max_{part}", granted, rule)
    return wanted or granted or UNLIMITED


def _sides(name: str, flavor: Flavor, image: Image) -> tuple[int, int]:
    """Return what flavor and image say as numbers, 0 for nothing."""
    ours, theirs = values_of(name, flavor, image)
    code = f"{name}_invalid"
    return (
        0 if ours is None else whole_number(ours, code, f"hw:{name}"),
        0 if theirs is None else whole_number(theirs, code, f"hw_{name}"),
    )


def _divisors(number: int) -> list[int]:
    """Return all divisors in order."""
    low = [divisor for divisor in range(1, int(number**0.5) + 1) if not number % divisor]
    return low + [number // divisor for divisor in reversed(low) if divisor**2 != number]


def _impossible(vcpus: int, most: CpuTopology, max_threads: int) -> Rejected:
    maximum = f"{most.sockets} sockets, {most.cores} cores and {max_threads} threads"
    message = f"vcpus is {vcpus}: no topology within {maximum} has exactly as many"
    return Rejected("cpu_topology_impossible", message, key="vcpus")
