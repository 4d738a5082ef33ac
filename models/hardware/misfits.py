"""Why a guest fits nowhere on a host, in the words and numbers an operator needs."""

from collections.abc import Sequence

from models.hardware.affinity import DEVICES, Affinity
from models.hardware.guest import CellMisfit, GuestTopology, Misfit
from models.hardware.matching import Places, matched
from models.hardware.packing import Shortage
from models.hardware.topology import HostCell

TOO_FEW = "too_few_host_cells"
NO_ROOM = "no_host_cell_fits"
CONTENDED = "host_cells_contended"


def explained(
    guest: GuestTopology,
    cells: Sequence[HostCell],
    shortages: Sequence[Sequence[Shortage | None]],
    affinity: Affinity | None,
) -> Misfit:
    """Return the misfit of a guest that has no valid placement.

    Pairs that would fit alone carry the reason that rules out the whole.
    """
    rows = [sum(1 << place for place, lack in enumerate(row) if lack is None) for row in shortages]
    code, message, need, have = _verdict(guest, cells, rows, affinity)
    whole = (code, need, have)
    order = sorted(range(len(cells)), key=lambda place: cells[place].id)
    pairs = tuple(
        CellMisfit(cell.id, cells[place].id, *(shortages[row][place] or whole))
        for row, cell in enumerate(guest.cells)
        for place in order
    )
    return Misfit(code, message, pairs)


def _verdict(
    guest: GuestTopology,
    cells: Sequence[HostCell],
    rows: Sequence[Places],
    affinity: Affinity | None,
) -> tuple[str, str, int, int]:
    wanted = len(guest.cells)
    if wanted > len(cells):
        message = f"the guest has {wanted} NUMA cells, the host {len(cells)}"
        return TOO_FEW, message, wanted, len(cells)
    for cell, places in zip(guest.cells, rows, strict=True):
        if not places:
            return NO_ROOM, f"guest cell {cell.id} fits no host cell", 1, 0
    placed = matched(rows)
    if placed < wanted:
        message = f"of {wanted} guest cells only {placed} find a host cell of their own"
        return CONTENDED, message, wanted, placed
    return _affinity_verdict(affinity, rows)


def _affinity_verdict(
    affinity: Affinity | None, rows: Sequence[Places]
) -> tuple[str, str, int, int]:
    usable = 0
    for places in rows:
        usable |= places
    lack = affinity.lack(usable) if affinity else None
    if lack is None:
        # Each network and device is near some usable cell, but no choice has all of them.
        message = "no choice of fitting host cells is near all the networks and devices asked for"
        return "affinity_not_satisfiable", message, len(rows), usable.bit_count()
    if lack.code == DEVICES:
        message = f"{lack.missing} of the devices asked for are not near the cells that fit"
    else:
        message = "a network asked for is local to host cells that do not fit"
    return lack.code, message, lack.missing, 0
