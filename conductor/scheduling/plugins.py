"""Filters and weighers by name: ours, and those that other distributions add by entry point.

A third party registers a plain function under `conductor.filters` or `conductor.weighers`; it is
loaded only where the settings name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from conductor.scheduling import weighers
from conductor.scheduling.checks import Filter
from conductor.scheduling.filters import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.weighers import Weigher
from models.errors import Rejected

FILTERS: Final = "conductor.filters"
WEIGHERS: Final = "conductor.weighers"

_FILTERS: Final[Mapping[str, Filter]] = {each.__name__: each for each in DEFAULT_FILTERS}
_WEIGHERS: Final[Mapping[str, Weigher]] = {
    each.__name__: each
    for each in (
        *(weigher for weigher, _ in (*weighers.SPREAD, *weighers.PACK)),
        weighers.less_busy,
        weighers.few_instances,
        weighers.own_host,
        weighers.own_cell,
        weighers.cpus_left,
        weighers.memory_left,
        weighers.disk_left,
    )
}


def filters_named(names: Iterable[str]) -> tuple[Filter, ...]:
    """Return these filters in this order; what is physical is in force whether named or not.

    Raises `Rejected` (`filter_unknown`).
    """
    named = [_FILTERS.get(name) or _loaded(FILTERS, name, _FILTERS) for name in names]
    return (*named, *(each for each in DEFAULT_FILTERS if each in PHYSICAL and each not in named))


def weighers_named(
    multipliers: Mapping[str, float], base: Iterable[tuple[Weigher, float]]
) -> tuple[tuple[Weigher, float], ...]:
    """Return a strategy's weighers with other multipliers, and more of them; 0 leaves one out.

    Raises `Rejected` (`weigher_unknown`).
    """
    changed = {
        _WEIGHERS.get(name) or _loaded(WEIGHERS, name, _WEIGHERS): multiplier
        for name, multiplier in multipliers.items()
    }
    both = {**dict(base), **changed}
    return tuple((weigher, multiplier) for weigher, multiplier in both.items() if multiplier)


def _loaded(group: str, name: str, ours: Iterable[str]) -> Any:
    found = tuple(entry_points(group=group, name=name))
    if len(found) == 1:
        return found[0].load()
    kind = group.rpartition(".")[2]
    where = f"no entry point of {group}" if not found else f"{len(found)} entry points of {group}"
    message = f"{kind} is {name}: there is {where} called so, ours are {', '.join(ours)}"
    raise Rejected(f"{kind.removesuffix('s')}_unknown", message, key=kind)
