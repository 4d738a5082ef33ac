"""Where on one host a guest fits: the first valid placement, or every reason why none exists.

Host cells are tried in the order of preference, guest cells in theirs; the answer is the
first valid assignment in that order. For G guest cells and H host cells:

1. Sort the host cells by preference: O(H log H).
2. First fit: each guest cell on the first free host cell that fits, O(G * H) pairs, each judged
   once a kind. It mostly succeeds, and then it is the answer.
3. Otherwise greedy with lookahead: a cell is kept if `feasibility` says that the rest can be
   placed (bipartite matching, branch and bound for devices). At most G * H such questions, so
   that no permutation is ever enumerated.
4. Where that finds nothing, explain which rule decided (`misfits`).
5. Else pin CPUs (`cpu_selection`) and distribute devices (`device_assignment`, max flow).
"""

from collections.abc import Sequence

from models.hardware import (
    ISOLATE,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    Misfit,
    PciRequest,
    PlacedCell,
    Placement,
    cpus_of,
)
from models.hardware.fitting.affinity import Affinity, affinity_of
from models.hardware.fitting.bipartite_matching import Places, first_matching
from models.hardware.fitting.cell_capacity import chosen_page_size, pins, shortage
from models.hardware.fitting.cpu_selection import Shortage, pick_cpus
from models.hardware.fitting.device_assignment import assign_devices
from models.hardware.fitting.feasibility import Feasibility
from models.hardware.fitting.misfits import explain_misfit


def fit(
    host: HostTopology,
    guest: GuestTopology,
    limits: Limits | None = None,
    *,
    pack: bool = False,
    pci_requests: Sequence[PciRequest] = (),
) -> Placement | Misfit:
    """Return the first valid placement of the guest on the host, or why there is none.

    Without limits shared guests are held to the cells' totals only. `pack` prefers used cells,
    otherwise unused ones. The rules are those of the contract's "valid placement".
    """
    # 1. Order of preference.
    cells = _preferred(host, guest, pack, bool(pci_requests))
    pairs = _Pairs(cells, guest, limits)
    affinity = affinity_of(cells, host.pci_pools, limits, pci_requests)
    # 2. First fit.
    places = _first_fit(pairs, affinity)
    if places is None:
        # 3. Greedy with lookahead.
        rows = tuple(pairs.rows())
        places = first_matching(rows, Feasibility(rows, len(cells), affinity).is_feasible)
        if places is None:
            # 4. No placement exists.
            return explain_misfit(guest, cells, pairs.shortages(), affinity)
    # 5. CPUs, pages and devices of the chosen cells.
    placed = tuple(
        _placed(cells[place], cell, extra)
        for place, cell, extra in zip(places, guest.cells, pairs.extras, strict=True)
    )
    chosen = [cells[place] for place in places]
    # Never None: the places were chosen by what they and the devices near them offer.
    devices = assign_devices(host, pci_requests, chosen) if pci_requests else ()
    return Placement(placed, guest.emulator_threads_policy, devices or ())


class _Pairs:
    """Whether guest cell g fits host cell h alone, computed once a pair of kinds."""

    def __init__(
        self, cells: Sequence[HostCell], guest: GuestTopology, limits: Limits | None
    ) -> None:
        self._cells = cells
        self._guest = guest.cells
        self._limits = limits
        self.places = len(cells)
        isolated = guest.emulator_threads_policy == ISOLATE and pins(guest.cells[0])
        # The emulator's CPU always goes with guest cell 0, so that its place is predictable.
        self.extras = [1 if isolated and row == 0 else 0 for row in range(len(guest.cells))]
        self._known: list[dict[int, Shortage | None]] = []
        kinds: dict[object, dict[int, Shortage | None]] = {}
        for cell, extra in zip(guest.cells, self.extras, strict=True):
            self._known.append(kinds.setdefault(_kind(cell, extra), {}))

    def fits(self, row: int, place: int) -> bool:
        return self.shortage(row, place) is None

    def shortage(self, row: int, place: int) -> Shortage | None:
        known = self._known[row]
        if place not in known:
            host, guest = self._cells[place], self._guest[row]
            known[place] = shortage(host, guest, self._limits, self.extras[row])
        return known[place]

    def rows(self) -> list[Places]:
        places = range(len(self._cells))
        return [
            sum(1 << place for place in places if self.fits(row, place))
            for row in range(len(self._guest))
        ]

    def shortages(self) -> list[list[Shortage | None]]:
        places = range(len(self._cells))
        return [[self.shortage(row, place) for place in places] for row in range(len(self._guest))]


def _kind(cell: GuestCell, extra: int) -> object:
    return (
        cell.shared_vcpus.bit_count(),
        cell.dedicated_vcpus.bit_count(),
        cell.memory_mib,
        cell.page_size_kib,
        cell.cpu_policy,
        cell.cpu_thread_policy,
        extra,
    )


def _first_fit(pairs: _Pairs, affinity: Affinity | None) -> tuple[int, ...] | None:
    """Return the first free fitting place of every row, where that works out at once.

    Whenever it does it is the first assignment in order, since no row could come earlier.
    """
    chosen: list[int] = []
    used = 0
    for row in range(len(pairs.extras)):
        for place in range(pairs.places):
            if not used >> place & 1 and pairs.fits(row, place):
                break
        else:
            return None
        chosen.append(place)
        used |= 1 << place
    if affinity is not None and affinity.missing(used) is not None:
        return None
    return tuple(chosen)


def _preferred(
    host: HostTopology, guest: GuestTopology, pack: bool, needs_devices: bool
) -> Sequence[HostCell]:
    """Return the host's cells in the order they are tried.

    Devices first (requested: most, else fewest; packing never reverses that), then CPU use,
    then free memory, the last two spread or packed. Ties, and guests with as many cells as
    the host, keep the host's order.
    """
    cells = host.cells
    if len(cells) <= len(guest.cells):
        return cells
    devices: dict[int, int] = {}
    for pool in host.pci_pools:
        if pool.numa_node is not None:
            devices[pool.numa_node] = devices.get(pool.numa_node, 0) + pool.free
    by_devices = -1 if needs_devices else 1
    spread = -1 if pack else 1
    if pins(guest.cells[0]):
        return sorted(
            cells,
            key=lambda cell: (
                by_devices * devices.get(cell.id, 0),
                -spread * cell.free_cpus.bit_count(),
                -spread * cell.free_memory_mib,
            ),
        )
    return sorted(
        cells,
        key=lambda cell: (
            by_devices * devices.get(cell.id, 0),
            spread * cell.cpu_used,
            -spread * cell.free_memory_mib,
        ),
    )


def _placed(host: HostCell, guest: GuestCell, extra: int) -> PlacedCell:
    page_size_kib = chosen_page_size(host, guest)
    if not pins(guest):
        return PlacedCell(
            guest.id,
            host.id,
            guest.shared_vcpus,
            guest.dedicated_vcpus,
            guest.memory_mib,
            page_size_kib,
        )
    vcpus = cpus_of(guest.dedicated_vcpus)
    pick = pick_cpus(host, len(vcpus), guest.cpu_thread_policy, extra)
    return PlacedCell(
        guest.id,
        host.id,
        guest.shared_vcpus,
        guest.dedicated_vcpus,
        guest.memory_mib,
        page_size_kib,
        tuple(zip(vcpus, pick.cpus, strict=True)),
        pick.reserved,
        pick.blocked,
    )
