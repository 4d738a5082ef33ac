"""What a picture of a host shows, worked out without drawing anything.

Every thread of every core gets its one use, and every bar its shares by guest; how that looks
is decided in `render_host`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from conductor.store import Host
from models.hardware import CpuMask, HostCell, PagePool, PlacedCell, Placement, cpus_of
from models.units import KIB_PER_MIB, MIB_PER_GIB

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Use(Enum):
    """What a thread is there for, or used by."""

    FREE = "free"
    SHARED = "shared"
    NOBODY = "nobody"
    PINNED = "pinned"
    EMULATOR = "emulator"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Guest:
    """An instance on a host; without a placement it is bound to no NUMA cell."""

    name: str
    vcpus: int
    memory_mib: int
    placement: Placement | None


@dataclass(frozen=True, slots=True)
class Thread:
    """One CPU; `guest` is the place of its guest among the drawn ones."""

    cpu: int
    use: Use
    guest: int | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """An amount shared among guests: `parts` are (guest, amount), `rest` is used by others."""

    label: str
    parts: tuple[tuple[int, int], ...]
    rest: int
    total: int
    text: str


@dataclass(frozen=True, slots=True)
class CellMap:
    """One NUMA cell: cores, each a column of threads, and bars."""

    id: int
    socket: int | None
    cores: tuple[tuple[Thread, ...], ...]
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class HostMap:
    """A host with the guests that are bound to its NUMA cells, and the others."""

    name: str
    cells: tuple[CellMap, ...]
    guests: tuple[Guest, ...]
    unbound: tuple[Guest, ...]


def host_map(host: Host, guests: Iterable[Guest]) -> HostMap:
    """Return what to draw of a host whose guests these are."""
    everyone = tuple(guests)
    bound = tuple(sorted((g for g in everyone if g.placement), key=_first_place))
    ratio = host.inventory["VCPU"].ratio if "VCPU" in host.inventory else 1.0
    return HostMap(
        host.name,
        tuple(_cell_map(cell, bound, ratio) for cell in host.topology.cells),
        bound,
        tuple(g for g in everyone if not g.placement),
    )


def label_of(place: int) -> str:
    """Return the label of a guest: A to Z, then AA, AB and so on."""
    tens, ones = divmod(place, len(_ALPHABET))
    return (_ALPHABET[(tens - 1) % len(_ALPHABET)] if tens else "") + _ALPHABET[ones]


def shares(bar: Bar, width: int) -> list[tuple[int | None, int]]:
    """Return (guest, characters) of a bar's used part, at most `width` in all.

    What is used at all shows at least one character, as long as there are any; `None` stands
    for use by nobody that is drawn.
    """
    amounts = [*bar.parts, *([(None, bar.rest)] if bar.rest > 0 else [])]
    left, shown = width, []
    for guest, amount in amounts:
        if amount <= 0 or left <= 0:
            continue
        wanted = max(1, round(amount * width / bar.total)) if bar.total > 0 else 1
        characters = min(wanted, left)
        shown.append((guest, characters))
        left -= characters
    return shown


def size_text(kib: int) -> str:
    """Return a page size as people say it: `4 KiB`, `2 MiB`, `1 GiB`."""
    for unit, size in (("GiB", KIB_PER_MIB * MIB_PER_GIB), ("MiB", KIB_PER_MIB)):
        if kib >= size and kib % size == 0:
            return f"{kib // size} {unit}"
    return f"{kib} KiB"


def memory_text(mib: int) -> str:
    """Return an amount of memory in GiB, or in MiB below one."""
    return f"{mib / MIB_PER_GIB:.3g} GiB" if abs(mib) >= MIB_PER_GIB else f"{mib} MiB"


def _gib(mib: int) -> str:
    return f"{mib / MIB_PER_GIB:.3g}"


def _cell_map(cell: HostCell, guests: Sequence[Guest], ratio: float) -> CellMap:
    here = [
        (place, placed)
        for place, guest in enumerate(guests)
        for placed in (guest.placement.cells if guest.placement else ())
        if placed.host_cell == cell.id
    ]
    uses = _uses(here)
    cores = tuple(tuple(_thread(cell, cpu, uses) for cpu in cpus_of(core)) for core in _cores(cell))
    return CellMap(cell.id, cell.socket, cores, _bars(cell, here, ratio))


def _uses(here: Sequence[tuple[int, PlacedCell]]) -> dict[int, tuple[Use, int]]:
    uses: dict[int, tuple[Use, int]] = {}
    for place, placed in here:
        uses.update((cpu, (Use.BLOCKED, place)) for cpu in cpus_of(placed.blocked_cpus))
        uses.update((cpu, (Use.EMULATOR, place)) for cpu in cpus_of(placed.reserved_cpus))
        uses.update((cpu, (Use.PINNED, place)) for _, cpu in placed.pinning)
    return uses


def _thread(cell: HostCell, cpu: int, uses: dict[int, tuple[Use, int]]) -> Thread:
    if cpu in uses:
        use, place = uses[cpu]
        return Thread(cpu, use, place)
    bit = 1 << cpu
    if cell.pinned_cpus & bit:
        return Thread(cpu, Use.UNKNOWN)
    if cell.dedicated_cpus & bit:
        return Thread(cpu, Use.FREE)
    return Thread(cpu, Use.SHARED if cell.shared_cpus & bit else Use.NOBODY)


def _cores(cell: HostCell) -> list[CpuMask]:
    """Return the cores in order of their first CPU; a CPU without known siblings is a core."""
    known = 0
    for core in cell.siblings:
        known |= core
    alone = (cell.shared_cpus | cell.dedicated_cpus) & ~known
    return sorted([*cell.siblings, *(1 << cpu for cpu in cpus_of(alone))], key=lambda m: m & -m)


def _bars(cell: HostCell, here: Sequence[tuple[int, PlacedCell]], ratio: float) -> tuple[Bar, ...]:
    bars = []
    if cell.shared_cpus:
        capacity = int(cell.shared_cpus.bit_count() * ratio)
        parts = [(place, placed.shared_vcpus.bit_count()) for place, placed in here]
        text = f"{cell.cpu_used}/{capacity} vCPU"
        bars.append(_bar("shared", parts, cell.cpu_used, capacity, text))
    parts = [(place, placed.memory_mib) for place, placed in here]
    text = f"{_gib(cell.memory_used_mib)}/{_gib(cell.memory_mib)} GiB"
    bars.append(_bar("memory", parts, cell.memory_used_mib, cell.memory_mib, text))
    smallest = min((pool.size_kib for pool in cell.page_pools), default=0)
    huge = [pool for pool in cell.page_pools if pool.size_kib != smallest and pool.total]
    return (*bars, *(_pool_bar(pool, here) for pool in huge))


def _pool_bar(pool: PagePool, here: Sequence[tuple[int, PlacedCell]]) -> Bar:
    parts = [
        (place, placed.memory_mib * KIB_PER_MIB // pool.size_kib)
        for place, placed in here
        if placed.page_size_kib == pool.size_kib
    ]
    used = pool.used + pool.reserved
    return _bar(size_text(pool.size_kib), parts, used, pool.total, f"{used}/{pool.total} pages")


def _bar(label: str, parts: Sequence[tuple[int, int]], used: int, total: int, text: str) -> Bar:
    known = tuple((place, amount) for place, amount in parts if amount)
    rest = max(0, used - sum(amount for _, amount in known))
    return Bar(label, known, rest, total, text)


def _first_place(guest: Guest) -> tuple[int, int, str]:
    """Sort guests as the eye meets them: by NUMA cell, then by first CPU."""
    cells = guest.placement.cells if guest.placement else ()
    first = min(cells, key=lambda cell: cell.host_cell)
    pinned = min((cpu for _, cpu in first.pinning), default=1 << 20)
    return first.host_cell, pinned, guest.name
