"""Whether one guest cell fits one host cell by itself: pages, memory, CPUs, limits."""

from collections.abc import Iterable

from models.hardware import (
    DEDICATED,
    LARGE_PAGES,
    MIXED,
    SMALL_PAGES,
    GuestCell,
    HostCell,
    Limits,
    PagePool,
)
from models.hardware.fitting.cpu_selection import Shortage, cpu_shortage
from models.units import KIB_PER_MIB


def shortage(
    host: HostCell, guest: GuestCell, limits: Limits | None, extra: int
) -> Shortage | None:
    """Return the first thing the host cell lacks for the guest cell, or None when it fits.

    `extra` is 1 where isolated emulator threads take a CPU of their own, else 0.
    """
    lack = _memory_shortage(host, guest)
    if lack is not None:
        return lack
    if guest.cpu_policy != DEDICATED:
        shared = guest.shared_vcpus.bit_count()
        if shared > host.shared_cpus.bit_count():
            return ("not_enough_shared_cpus", shared, host.shared_cpus.bit_count())
    if pins(guest):
        vcpus = guest.dedicated_vcpus.bit_count()
        lack = cpu_shortage(host, vcpus, guest.cpu_thread_policy, extra)
        if lack is not None:
            return lack
    if limits is not None and guest.cpu_policy != DEDICATED:
        return _over_limits(host, guest, limits)
    return None


def pins(guest: GuestCell) -> bool:
    """Say whether the cell's guest has dedicated CPUs, and so may not over-commit memory."""
    return guest.cpu_policy in (DEDICATED, MIXED)


def chosen_page_size(host: HostCell, guest: GuestCell) -> int | None:
    """Return the page size in KiB that a fitting guest cell gets, None where it requires none."""
    wanted = guest.page_size_kib
    if wanted is None or wanted > 0:
        return wanted
    return next(pool.size_kib for pool in _eligible(host, wanted) if _holds(pool, guest))


def _memory_shortage(host: HostCell, guest: GuestCell) -> Shortage | None:
    wanted = guest.page_size_kib
    if wanted is None:
        return _unsized_shortage(host, guest)
    pools = _eligible(host, wanted)
    if not pools:
        return ("page_size_not_offered", max(wanted, 0), 0)
    if any(_holds(pool, guest) for pool in pools):
        return None
    return _page_shortage(pools[-1] if len(pools) == 1 else _roomiest(pools), guest)


def _unsized_shortage(host: HostCell, guest: GuestCell) -> Shortage | None:
    if not host.page_pools:
        available = host.free_memory_mib if pins(guest) else host.memory_mib
        if guest.memory_mib <= available:
            return None
        return ("not_enough_memory", guest.memory_mib, available)
    pool = min(host.page_pools, key=_size_of)
    if not pins(guest):
        # Shared guests may over-commit the pool, but none may be larger than all of it.
        pool = PagePool(pool.size_kib, pool.total)
    return None if _holds(pool, guest) else _page_shortage(pool, guest)


def _eligible(host: HostCell, wanted: int) -> list[PagePool]:
    """Return the pools that a page size request allows, biggest pages first."""
    if wanted > 0:
        return [pool for pool in host.page_pools if pool.size_kib == wanted]
    pools = sorted(host.page_pools, key=_size_of, reverse=True)
    if wanted == SMALL_PAGES:
        return pools[-1:]
    return pools[:-1] if wanted == LARGE_PAGES else pools


def _holds(pool: PagePool, guest: GuestCell) -> bool:
    pages, rest = divmod(guest.memory_mib * KIB_PER_MIB, pool.size_kib)
    return not rest and pages <= pool.free


def _page_shortage(pool: PagePool, guest: GuestCell) -> Shortage:
    pages, rest = divmod(guest.memory_mib * KIB_PER_MIB, pool.size_kib)
    if rest:
        return ("memory_not_whole_pages", guest.memory_mib * KIB_PER_MIB, pool.size_kib)
    return ("not_enough_pages", pages, pool.free)


def _roomiest(pools: Iterable[PagePool]) -> PagePool:
    return max(pools, key=lambda pool: pool.free * pool.size_kib)


def _size_of(pool: PagePool) -> int:
    return pool.size_kib


def _over_limits(host: HostCell, guest: GuestCell, limits: Limits) -> Shortage | None:
    cpus = host.cpu_used + guest.shared_vcpus.bit_count()
    cpu_limit = host.shared_cpus.bit_count() * limits.cpu_allocation_ratio
    if cpus > cpu_limit:
        return ("cpu_limit_exceeded", cpus, int(cpu_limit))
    memory = host.memory_used_mib + guest.memory_mib
    memory_limit = host.memory_mib * limits.ram_allocation_ratio
    if memory > memory_limit:
        return ("memory_limit_exceeded", memory, int(memory_limit))
    return None
