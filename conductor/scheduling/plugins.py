"""Filters and weighers by name: ours, and those that other distributions add by entry point.

A third party registers a plain function under `conductor.filters` or `conductor.weighers`; it is
loaded only where the settings name it. What it does wrong fails the decision, and says whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import structlog

from conductor.scheduling.filters.host_filters import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.fleet.filter_verdicts import Check, Filter
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Numbers
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers import host_weighers
from conductor.scheduling.weighers.headroom import Floats
from conductor.scheduling.weighers.host_weighers import Weigher
from models.errors import Broken, Rejected

_log = structlog.get_logger(__name__)

FILTERS: Final = "conductor.filters"
WEIGHERS: Final = "conductor.weighers"

_FILTERS: Final[Mapping[str, Filter]] = {
    DEFAULT_filter.__name__: DEFAULT_filter for DEFAULT_filter in DEFAULT_FILTERS
}
_WEIGHERS: Final[Mapping[str, Weigher]] = {
    item.__name__: item
    for item in (
        *(weigher for weigher, _ in (*host_weighers.SPREAD, *host_weighers.PACK)),
        host_weighers.less_busy,
        host_weighers.few_instances,
        host_weighers.own_host,
        host_weighers.own_cell,
        host_weighers.cpus_left,
        host_weighers.memory_left,
        host_weighers.disk_left,
    )
}


def filters_named(names: Iterable[str]) -> tuple[Filter, ...]:
    """Return these filters in this order; what is physical is in force whether named or not.

    Raises `Rejected` (`filter_unknown`, `filter_unloadable`).
    """
    named = [_FILTERS.get(name) or _loaded(FILTERS, name, _FILTERS) for name in names]
    return (
        *named,
        *(
            DEFAULT_filter
            for DEFAULT_filter in DEFAULT_FILTERS
            if DEFAULT_filter in PHYSICAL and DEFAULT_filter not in named
        ),
    )


def weighers_named(
    multipliers: Mapping[str, float], base: Iterable[tuple[Weigher, float]]
) -> tuple[tuple[Weigher, float], ...]:
    """Return a strategy's weighers with other multipliers, and more of them; 0 leaves one out.

    Raises `Rejected` (`weigher_unknown`, `weigher_unloadable`).
    """
    changed = {
        _WEIGHERS.get(name) or _loaded(WEIGHERS, name, _WEIGHERS): multiplier
        for name, multiplier in multipliers.items()
    }
    both = {**dict(base), **changed}
    return tuple((weigher, multiplier) for weigher, multiplier in both.items() if multiplier)


def _loaded(group: str, name: str, ours: Iterable[str]) -> Any:
    found = tuple(entry_points(group=group, name=name))
    kind = group.rpartition(".")[2]
    if len(found) != 1:
        where = f"{len(found)} entry points of {group}" if found else f"no entry point of {group}"
        message = f"{kind} is {name}: there is {where} called so, ours are {', '.join(ours)}"
        raise Rejected(f"{kind.removesuffix('s')}_unknown", message, key=kind)
    try:
        function = found[0].load()
    except Exception as error:
        message = f"{kind} is {name}: its entry point {found[0].value} does not load: {error}"
        raise Rejected(f"{kind.removesuffix('s')}_unloadable", message, key=kind) from error
    return (_watched_filter if group == FILTERS else _watched_weigher)(name, function)


def _watched_filter(name: str, function: Filter) -> Filter:
    """Return the filter such that whatever is wrong with it is said to be its fault."""

    @wraps(function)
    def watched(spec: RequestSpec, fleet: Fleet) -> Iterable[Check]:
        with _named("filter", name):
            checks = list(function(spec, fleet))
        for check in checks:
            if check.passed.shape != (len(fleet),) or check.passed.dtype != np.bool_:
                rule = "should say true or false for each host"
                raise Broken("filter_failed", f"filter {name} answers wrongly: {check.code} {rule}")
        return checks

    return watched


def _watched_weigher(name: str, function: Weigher) -> Weigher:
    @wraps(function)
    def watched(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
        with _named("weigher", name):
            weights = function(spec, fleet, rows)
        if np.shape(weights) not in ((), rows.shape) or not np.isfinite(weights).all():
            rule = "should be a finite number, or one for each row"
            raise Broken("weigher_failed", f"weigher {name} answers wrongly: {rule}")
        return weights

    return watched


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # It may have put anything into its text; faults are for the owners of instances.
        _log.error("a plugin has failed", kind=kind, name=name, exc_info=error)
        what = f"{type(error).__name__}: the scheduler's log has it"
        raise Broken(f"{kind}_failed", f"{kind} {name} raised {what}") from error
