"""Answers of the fitter, remembered while the host they are about has not changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from conductor.scheduling.demand import Shape, place
from conductor.store.records import Host, Inventory
from models.hardware.guest import CellMisfit, Misfit, Placement
from models.hardware.topology import HostTopology

SHAPES_AT_MOST: Final = 64

_TEXTS: Final = {
    "not_enough_memory": "free memory in one NUMA cell",
    "not_enough_pages": "free pages of the size asked for in one NUMA cell",
    "page_size_not_offered": "pages of the size asked for",
    "not_enough_shared_cpus": "shared CPUs in one NUMA cell",
    "cpu_limit_exceeded": "shared CPUs within the ratio of one NUMA cell",
    "memory_limit_exceeded": "memory within the ratio of one NUMA cell",
    "too_few_host_cells": "NUMA cells",
    "host_cells_contended": "NUMA cells that fit at the same time",
}


@dataclass(frozen=True, slots=True)
class Lack:
    """What of a host kept a guest out, as one code and the two numbers that were nearest."""

    code: str
    need: int
    have: int

    @property
    def lacks(self) -> tuple[str, str]:
        """The predicate for one host and for several."""
        what = _TEXTS.get(self.code, self.code.replace("_", " "))
        return f"lacks {what}", f"lack {what}"


_Known = tuple[HostTopology, Mapping[str, Inventory], Placement | Lack | None]


class Fits:
    """Remembers, per shape and host, what the fitter said of exactly this topology object.

    Values never change, so an answer holds as long as the host still is the same object; a
    host that changed is simply asked again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Shape, bool], dict[str, _Known]] = OrderedDict()

    def fit(self, shape: Shape, host: Host, *, pack: bool) -> Placement | Lack | None:
        """Return where the shape fits on the host, what it lacks, or None for no NUMA cells."""
        if shape.guest is None:
            return None
        answers = self._answers(shape, pack)
        known = answers.get(host.name)
        if known is not None and known[0] is host.topology and known[1] is host.inventory:
            return known[2]
        answer = place(shape, host, pack=pack)
        kept = lack_of(answer) if isinstance(answer, Misfit) else answer
        answers[host.name] = (host.topology, host.inventory, kept)
        return kept

    def _answers(self, shape: Shape, pack: bool) -> dict[str, _Known]:
        key = (shape, pack)
        answers = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        if len(self._known) > SHAPES_AT_MOST:
            self._known.popitem(last=False)
        return answers


def lack_of(misfit: Misfit) -> Lack:
    """Return the one reason of a misfit: of the pairs with reasons of their own the nearest."""
    own = [cell for cell in misfit.cells if cell.code != misfit.code]
    pairs = own or misfit.cells
    if not pairs:
        return Lack(misfit.code, 0, 0)
    nearest = max(pairs, key=_nearness)
    return Lack(nearest.code, nearest.need, nearest.have)


def _nearness(pair: CellMisfit) -> float:
    return pair.have / max(pair.need, 1)
