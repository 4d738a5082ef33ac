"""Which dedicated CPUs of one host cell a guest cell gets, under each thread policy.

`cpu_shortage` decides, `pick_cpus` chooses; whenever the first finds nothing missing, the
second succeeds. CPUs of which no siblings are known count as cores of one thread. Cores are sets of
free threads; for C cores all of it is O(C log C), the sort by free threads:

- prefer: best fit decreasing. Cores with most free threads are filled whole, the rest goes on the
  smallest core that still holds it.
- require: the same on cores with at least two free threads.
- isolate: one thread each of wholly free cores, the widest first.
"""

from dataclasses import dataclass
from typing import TypeAlias

from models.hardware import ISOLATE, REQUIRE, CpuMask, HostCell, cpus_of, first_cpus

Shortage: TypeAlias = tuple[str, int, int]
"""Why something does not fit: a stable code, what is needed, what there is."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Host CPUs for the guest's vCPUs, in vCPU order, and those kept for it beside them."""

    cpus: tuple[int, ...] = ()
    reserved: CpuMask = 0
    blocked: CpuMask = 0


def cpu_shortage(
    cell: HostCell, vcpus: int, thread_policy: str | None, extra: int
) -> Shortage | None:
    """Return what the cell lacks for `vcpus` pinned vCPUs and `extra` emulator CPUs (0 or 1).

    A thread policy binds only where something is pinned: a mixed guest's cell without
    dedicated vCPUs fits under any.
    """
    free = cell.free_cpus.bit_count()
    if vcpus + extra > free:
        return ("not_enough_dedicated_cpus", vcpus + extra, free)
    if thread_policy == ISOLATE and vcpus + extra:
        return _isolate_shortage(cell, vcpus, extra)
    if thread_policy == REQUIRE and vcpus:
        return _require_shortage(cell, vcpus)
    return None


def pick_cpus(cell: HostCell, vcpus: int, thread_policy: str | None, extra: int) -> Pick:
    """Return the CPUs to pin; only for what `cpu_shortage` found nothing missing for."""
    if thread_policy == ISOLATE:
        return _pick_isolated(cell, vcpus, extra)
    # 1. The free threads of each core, of those the policy allows.
    cores = _free_cores(cell)
    usable = _with_siblings(cores) if thread_policy == REQUIRE else cores
    # 2. Best fit decreasing, so that siblings stay together.
    threads = _siblings_together(usable, vcpus)
    cpus: list[int] = []
    for mask in threads:
        cpus += cpus_of(mask)
    if not extra:
        return Pick(tuple(cpus))
    # 3. The emulator gets a thread of the fullest core, where it breaks up no siblings.
    free = cell.free_cpus & ~sum(threads)
    leftovers = [core & free for core in cores if core & free]
    return Pick(tuple(cpus), first_cpus(min(leftovers, key=int.bit_count), 1))


def _require_shortage(cell: HostCell, vcpus: int) -> Shortage | None:
    if cell.threads_per_core < 2:
        return ("no_sibling_threads", 2, 1)
    # Any count up to this sum can be laid out with at most one vCPU alone on its core.
    threads = sum(map(int.bit_count, _with_siblings(_free_cores(cell))))
    return ("not_enough_sibling_threads", vcpus, threads) if vcpus > threads else None


def _isolate_shortage(cell: HostCell, vcpus: int, extra: int) -> Shortage | None:
    if vcpus and cell.threads_per_core > 1 and cell.shared_cpus != cell.dedicated_cpus:
        # Siblings can be kept idle only where nobody else could be given them.
        return ("siblings_not_blockable", 1, cell.threads_per_core)
    widest, narrower = _whole_cores(cell)
    if vcpus > len(widest):
        return ("not_enough_free_cores", vcpus, len(widest))
    if vcpus + extra > len(widest) + len(narrower):
        return ("no_core_for_emulator_threads", vcpus + extra, len(widest) + len(narrower))
    return None


def _pick_isolated(cell: HostCell, vcpus: int, extra: int) -> Pick:
    widest, narrower = _whole_cores(cell)
    cores = widest[:vcpus]
    cpus = tuple((core & -core).bit_length() - 1 for core in cores)
    reserved = 0
    if extra:
        # Narrow cores can carry no isolated vCPU, so they go to the emulator first.
        core = narrower[0] if narrower else widest[vcpus]
        reserved = core & -core
        cores.append(core)
    blocked = 0
    if cell.shared_cpus == cell.dedicated_cpus:
        blocked = sum(core & (core - 1) for core in cores)
    return Pick(cpus, reserved, blocked)


def _siblings_together(cores: list[CpuMask], vcpus: int) -> list[CpuMask]:
    """Return threads for the vCPUs by core: emptiest cores whole, the rest where it just fits.

    At most one vCPU is alone on a core that has two free threads.
    """
    chosen: list[CpuMask] = []
    cores = sorted(cores, key=int.bit_count, reverse=True)
    for position, core in enumerate(cores):
        threads = core.bit_count()
        # 1. What is left fits on one core: on the smallest that holds it. Ends the walk.
        if threads >= vcpus:
            if vcpus:
                roomy = [number for number in cores[position:] if number.bit_count() >= vcpus]
                chosen.append(first_cpus(min(roomy, key=int.bit_count), vcpus))
            break
        # 2. One would be left alone: keep back one more, so that two share the next core.
        if threads > 2 and vcpus == threads + 1 and cores[position + 1].bit_count() > 1:
            threads -= 1
        # 3. Fill this core whole.
        chosen.append(first_cpus(core, threads))
        vcpus -= threads
    return chosen


def _with_siblings(cores: list[CpuMask]) -> list[CpuMask]:
    """Return the cores that have at least two threads."""
    return [core for core in cores if core & (core - 1)]


def _free_cores(cell: HostCell) -> list[CpuMask]:
    """Return the free threads of every core that has some."""
    free = cell.free_cpus
    cores = [core & free for core in cell.siblings if core & free]
    return cores if sum(cores) == free else cores + _lone_cpus(cell)


def _whole_cores(cell: HostCell) -> tuple[list[CpuMask], list[CpuMask]]:
    """Return the wholly free cores: those of the cell's greatest thread count, and the others."""
    unavailable = ~cell.free_cpus
    whole = [core for core in cell.siblings if core and not core & unavailable]
    whole += _lone_cpus(cell)
    threads = cell.threads_per_core
    widest = [core for core in whole if core.bit_count() == threads]
    return widest, [core for core in whole if core.bit_count() < threads]


def _lone_cpus(cell: HostCell) -> list[CpuMask]:
    """Return the free CPUs of which no siblings are known, each as a core."""
    free = cell.free_cpus & ~sum(cell.siblings)
    return [1 << cpu for cpu in cpus_of(free)]
