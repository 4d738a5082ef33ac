"""Cached answers of the fitter, valid while the host has not changed.

Refusals are kept by row in arrays, so that a shape that fits nowhere costs the second time what a
filter costs; placements are kept by host, since few hosts are ever fitted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from conductor.scheduling.fleet.filter_verdicts import EXAMPLES, Removal
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Mask
from conductor.scheduling.request.instance_shape import Shape
from conductor.scheduling.request.shape_placement import place
from conductor.store import Host, Inventory
from models.hardware import CellMisfit, GuestCell, GuestTopology, HostTopology, Misfit, Placement
from models.hardware.fitting.misfits import page_text

SHAPES_AT_MOST: Final = 64
NEVER: Final = -1

_TEXTS: Final = {
    "not_enough_memory": "free memory in one NUMA cell",
    "not_enough_pages": "free {pages} in one NUMA cell",
    "page_size_not_offered": "{pages}",
    "memory_not_whole_pages": "pages of which its memory is a whole number",
    "not_enough_shared_cpus": "shared CPUs in one NUMA cell",
    "not_enough_dedicated_cpus": "free dedicated CPUs in one NUMA cell",
    "no_sibling_threads": "sibling threads",
    "not_enough_sibling_threads": "free CPUs with a free sibling in one NUMA cell",
    "siblings_not_blockable": "cores whose other threads nobody else may use",
    "not_enough_free_cores": "wholly free cores in one NUMA cell",
    "no_core_for_emulator_threads": "wholly free cores, one for emulator threads, in one NUMA cell",
    "cpu_limit_exceeded": "shared CPUs within the ratio of one NUMA cell",
    "memory_limit_exceeded": "memory within the ratio of one NUMA cell",
    "too_few_host_cells": "NUMA cells",
    "host_cells_contended": "NUMA cells that fit at the same time",
    "devices_not_local": "free devices near the NUMA cells that fit",
    "network_not_local": "the networks asked for near the NUMA cells that fit",
    "affinity_not_satisfiable": "NUMA cells near all networks and devices at the same time",
}
"""What a host lacks, by every code that the fitter has."""

_UNCOUNTED: Final = frozenset(
    {
        "page_size_not_offered",
        "memory_not_whole_pages",
        "no_sibling_threads",
        "siblings_not_blockable",
        "network_not_local",
        "affinity_not_satisfiable",
    }
)
"""Codes that are not about amounts: their numbers, where there are any, are not comparable."""

_UNITS: Final = {
    "not_enough_memory": "MiB",
    "not_enough_pages": "MiB",
    "memory_limit_exceeded": "MiB",
}


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a guest does not fit a host, as one code and the numbers of the nearest NUMA cell.

    `what` is lacking in words, where the code alone is not specific.
    """

    code: str
    need: int
    have: int
    what: str = ""

    @property
    def numbers(self) -> tuple[int, int] | tuple[None, None]:
        """Need and have, where the code is about amounts."""
        return (None, None) if self.code in _UNCOUNTED else (self.need, self.have)

    @property
    def lacks(self) -> tuple[str, str]:
        """The predicate for one host and for several."""
        what = self.what or _TEXTS.get(self.code, self.code.replace("_", " "))
        return f"lacks {what}", f"lack {what}"


_Known = tuple[HostTopology, Mapping[str, Inventory], Placement | None]


class Answers:
    """The fitter's answers about one shape on the hosts of one fleet."""

    def __init__(self, shape: Shape, fleet: Fleet, *, pack: bool) -> None:
        self.fleet = fleet
        self._shape = shape
        self._pack = pack
        self._placed: dict[str, _Known] = {}
        rows = len(fleet) if shape.has_place else 0
        self._refused_at = np.full(rows, NEVER, np.int64)
        self._kinds: list[tuple[str, str]] = []
        self._code = np.zeros(rows, np.int16)
        self._need = np.zeros(rows, np.int64)
        self._have = np.zeros(rows, np.int64)

    def refused(self, alive: Mask) -> Mask:
        """Return which of these rows were refused and have not changed since."""
        if not self._shape.has_place:
            return np.zeros(len(alive), np.bool_)
        return np.asarray(alive & (self._refused_at >= self.fleet.ticks))

    def fit(self, row: int) -> Placement | Lack | None:
        """Return where the shape fits on the host, what it lacks, or None if it has no place."""
        if not self._shape.has_place:
            return None
        host = self.fleet.hosts[row]
        known = self._placed.get(host.name)
        if known is not None and known[0] is host.topology and known[1] is host.inventory:
            return known[2]
        answer = place(self._shape, host, pack=self._pack)
        if isinstance(answer, Misfit):
            return self._refuse(row, lack_of(answer, self._shape.guest))
        self._placed[host.name] = (host.topology, host.inventory, answer)
        return answer

    def removals(self, refused: Mask) -> Iterator[Removal]:
        """Yield the refused rows counted by reason, with the nearest of each."""
        rows = np.flatnonzero(refused)
        codes = self._code[rows]
        for number in dict.fromkeys(codes.tolist()):
            some = rows[codes == number]
            best = some[self._have[some].argmax()]
            code, what = self._kinds[number]
            lack = Lack(code, int(self._need[best]), int(self._have[best]), what)
            need, have = lack.numbers
            yield Removal(
                lack.code,
                lack.lacks,
                len(some),
                tuple(self.fleet.hosts[row].name for row in some[:EXAMPLES]),
                need,
                have,
                None if need is None else self.fleet.hosts[best].name,
                _UNITS.get(lack.code, ""),
            )

    def _refuse(self, row: int, lack: Lack) -> Lack:
        kind = (lack.code, lack.what)
        if kind not in self._kinds:
            self._kinds.append(kind)
        self._code[row] = self._kinds.index(kind)
        self._need[row], self._have[row] = lack.need, lack.have
        self._refused_at[row] = self.fleet.tick
        return lack


class Fits:
    """The answers about recently requested shapes, least recently used evicted first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Shape, bool], Answers] = OrderedDict()

    def of(self, shape: Shape, fleet: Fleet, *, pack: bool) -> Answers:
        """Return the answers about a shape on this fleet; empty for a rebuilt fleet."""
        key = (shape, pack)
        answers = self._known.get(key)
        if answers is None or answers.fleet is not fleet:
            answers = self._known[key] = Answers(shape, fleet, pack=pack)
        self._known.move_to_end(key)
        if len(self._known) > SHAPES_AT_MOST:
            self._known.popitem(last=False)
        return answers


def fit_or_lack(shape: Shape, host: Host, *, pack: bool) -> Placement | Lack | None:
    """Return where the shape fits on a host, what it lacks, or None; not cached."""
    answer = place(shape, host, pack=pack)
    return lack_of(answer, shape.guest) if isinstance(answer, Misfit) else answer


def lack_of(misfit: Misfit, guest: GuestTopology | None) -> Lack:
    """Return the one reason of a misfit: the rule that decided, with its numbers.

    Where a guest cell fits no host cell, the reason is what the nearest host cell lacks for it.
    """
    cell = _cell_of(guest, misfit.guest_cell)
    pairs = [pair for pair in misfit.cells if cell is not None and pair.guest_cell == cell.id]
    if cell is None or not pairs:
        what = ""
        if misfit.devices:
            near = "" if guest is None else " near the NUMA cells that fit"
            what = f"free devices {', '.join(misfit.devices)}{near}"
        return Lack(misfit.code, misfit.need, misfit.have, what)
    nearest = max(pairs, key=_nearness)
    return _of_pair(nearest, cell)


def _cell_of(guest: GuestTopology | None, cell_id: int | None) -> GuestCell | None:
    cells = guest.cells if guest is not None else ()
    return next((cell for cell in cells if cell.id == cell_id), None)


def _of_pair(pair: CellMisfit, cell: GuestCell) -> Lack:
    """Return a pair's reason; pages are given in MiB, with the page size in words."""
    need, have = pair.need, pair.have
    if pair.code not in ("not_enough_pages", "page_size_not_offered"):
        return Lack(pair.code, need, have)
    pages = page_text(cell, need if pair.code == "not_enough_pages" else None)
    what = _TEXTS[pair.code].format(pages=pages)
    if cell.page_size_kib is None:
        what = f"free memory in one NUMA cell (it asks for no page size: {pages})"
    if pair.code == "not_enough_pages" and need:
        have = have * cell.memory_mib // need
        need = cell.memory_mib
    return Lack(pair.code, need, have, what)


def _nearness(pair: CellMisfit) -> float:
    return 0.0 if pair.code in _UNCOUNTED else pair.have / max(pair.need, 1)
