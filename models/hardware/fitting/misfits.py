"""Why a guest fits nowhere on a host, in the words and numbers an operator needs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from models.hardware import (
    ANY_PAGES,
    LARGE_PAGES,
    SMALL_PAGES,
    CellMisfit,
    GuestCell,
    GuestTopology,
    HostCell,
    Misfit,
)
from models.hardware.fitting.affinity import DEVICES, Affinity
from models.hardware.fitting.bipartite_matching import Places, matching_size
from models.hardware.fitting.cpu_selection import Shortage
from models.units import KIB_PER_MIB, MIB_PER_GIB

TOO_FEW: Final = "too_few_host_cells"
NO_CELL_FITS: Final = "no_host_cell_fits"
CONTENDED: Final = "host_cells_contended"
AFFINITY: Final = "affinity_not_satisfiable"

WORDS: Final = {
    "page_size_not_offered": "there are no {pages}",
    "memory_not_whole_pages": "{need} KiB of memory are no whole number of {have} KiB pages",
    "not_enough_pages": "needs {need} free {pages}, the best has {have}",
    "not_enough_memory": "needs {need} MiB of memory, the best has {have} MiB",
    "not_enough_shared_cpus": "needs {need} shared CPUs, the best has {have}",
    "not_enough_dedicated_cpus": "needs {need} free dedicated CPUs, the best has {have}",
    "no_sibling_threads": "needs sibling threads, there are none",
    "not_enough_sibling_threads": "needs {need} free sibling threads, the best has {have}",
    "siblings_not_blockable": "needs cores of its own, sibling threads cannot be kept idle",
    "not_enough_free_cores": "needs {need} wholly free cores, the best has {have}",
    "no_core_for_emulator_threads": "needs {need} wholly free cores, the best has {have}",
    "cpu_limit_exceeded": "would bring shared vCPUs to {need}, the limit is {have}",
    "memory_limit_exceeded": "would bring memory to {need} MiB, the limit is {have} MiB",
}
"""What an operator reads for each reason of a pair of cells."""

_KINDS: Final = {
    SMALL_PAGES: "small pages",
    LARGE_PAGES: "large pages",
    ANY_PAGES: "pages of any one size",
}

_Shortages: TypeAlias = Sequence[Sequence[Shortage | None]]


def explain_misfit(
    guest: GuestTopology,
    cells: Sequence[HostCell],
    shortages: _Shortages,
    affinity: Affinity | None,
) -> Misfit:
    """Return the misfit of a guest that has no valid placement.

    `shortages[g][h]` is what host cell h lacks for guest cell g. Pairs that lack nothing carry
    the reason that rules out the whole. Pairs are ordered by guest cell, then host cell.
    """
    verdict = _verdict(guest, cells, shortages, affinity)
    whole = (verdict.code, verdict.need, verdict.have)
    order = sorted(range(len(cells)), key=lambda place: cells[place].id)
    pairs = tuple(
        CellMisfit(cell.id, cells[place].id, *(shortages[row][place] or whole))
        for row, cell in enumerate(guest.cells)
        for place in order
    )
    return replace(verdict, cells=pairs)


def _verdict(
    guest: GuestTopology,
    cells: Sequence[HostCell],
    shortages: _Shortages,
    affinity: Affinity | None,
) -> Misfit:
    """Return the code, the sentence and the two numbers of the rule that decided."""
    wanted = len(guest.cells)
    if wanted > len(cells):
        message = f"the guest has {wanted} NUMA cells, the host {len(cells)}"
        return Misfit(TOO_FEW, message, (), wanted, len(cells))
    for cell, lacks in zip(guest.cells, shortages, strict=True):
        if None not in lacks:
            message = f"guest cell {cell.id} fits no host cell: {_nearest(cell, lacks)}"
            return Misfit(NO_CELL_FITS, message, (), 1, 0, cell.id)
    rows = [sum(1 << place for place, lack in enumerate(row) if lack is None) for row in shortages]
    placed = matching_size(rows)
    if placed < wanted:
        message = f"of {wanted} guest cells only {placed} find a host cell of their own"
        return Misfit(CONTENDED, message, (), wanted, placed)
    return _affinity_verdict(affinity, rows)


def _affinity_verdict(affinity: Affinity | None, rows: Sequence[Places]) -> Misfit:
    usable = 0
    for places in rows:
        usable |= places
    lack = affinity.missing(usable) if affinity else None
    if lack is None:
        # Each network and device is near some usable cell, but no choice has all of them.
        message = "no choice of fitting host cells is near all the networks and devices asked for"
        only = affinity.devices if affinity and not affinity.networks else None
        names = only.names if only else ()
        return Misfit(AFFINITY, message, (), len(rows), usable.bit_count(), None, names)
    code, missing = lack
    if code != DEVICES:
        message = "a network asked for is local to host cells that do not fit"
        return Misfit(code, message, (), missing, 0)
    names = affinity.short_devices(usable) if affinity else ()
    short = f"{missing} of the devices asked for ({', '.join(names)})"
    message = f"{short} are not free near the cells that fit"
    return Misfit(code, message, (), missing, 0, None, names)


def _nearest(cell: GuestCell, lacks: Sequence[Shortage | None]) -> str:
    """Return the most frequent reason in words, with the numbers of the cell that came closest."""
    reasons = Counter(lack for lack in lacks if lack is not None)
    codes = Counter(code for code, _, _ in reasons.elements())
    code = max(codes, key=lambda item: codes[item])
    need, have = max(
        ((need, have) for reason, need, have in reasons if reason == code), key=lambda pair: pair[1]
    )
    pages = page_text(cell, need if code == "not_enough_pages" else None)
    return WORDS[code].format(need=need, have=have, pages=pages)


def page_text(cell: GuestCell, pages: int | None = None) -> str:
    """Return the pages that a guest cell asks for in words: `2 MiB pages`, `large pages`.

    Where it names no size, so many `pages` for its memory tell which it was held to.
    """
    kind = _KINDS.get(cell.page_size_kib or 0, "pages")
    size_kib = cell.page_size_kib if (cell.page_size_kib or 0) > 0 else None
    if size_kib is None and pages:
        size_kib = cell.memory_mib * KIB_PER_MIB // pages
    if size_kib is None:
        return kind
    return f"{kind} of {size_text(size_kib)}"


def size_text(size_kib: int) -> str:
    """Return a page size in the largest unit that it is a whole number of."""
    for unit, kib in (("GiB", KIB_PER_MIB * MIB_PER_GIB), ("MiB", KIB_PER_MIB)):
        if size_kib >= kib and size_kib % kib == 0:
            return f"{size_kib // kib} {unit}"
    return f"{size_kib} KiB"
