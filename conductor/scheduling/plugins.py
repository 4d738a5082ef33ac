"""Filters and weighers by name: built-in ones, and plugins of other distributions.

A plugin is a function under the entry points `conductor.filters` or `conductor.weighers`, loaded
only where the settings name it. A plugin that misbehaves fails the decision with its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import structlog

from conductor.scheduling.filters.filter_table import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.fleet.filter_verdicts import Check, Filter
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.weigher_table import WEIGHERS, Weigher
from models.errors import Broken, Rejected
from models.messages.catalogue import WEIGHER_PLUGINS

_log = structlog.get_logger(__name__)

FILTER_GROUP: Final = "conductor.filters"
WEIGHER_GROUP: Final = WEIGHER_PLUGINS

_FILTERS: Final[Mapping[str, Filter]] = {
    host_filter.__name__: host_filter for host_filter in DEFAULT_FILTERS
}


def filters_named(names: Iterable[str]) -> tuple[Filter, ...]:
    """Return these filters in this order; physical ones are in force whether named or not.

    Raises `Rejected` (`filter_unknown`, `filter_unloadable`).
    """
    named = [_FILTERS.get(name) or _loaded(FILTER_GROUP, name, _FILTERS) for name in names]
    return (
        *named,
        *(known for known in DEFAULT_FILTERS if known in PHYSICAL and known not in named),
    )


def weighers_named(
    multipliers: Mapping[str, float], base: Iterable[tuple[Weigher, float]]
) -> tuple[tuple[Weigher, float], ...]:
    """Return the weighers of `base` with these multipliers changed or added; 0 leaves one out.

    Raises `Rejected` (`weigher_unknown`, `weigher_unloadable`).
    """
    changed = {
        WEIGHERS.get(name) or _loaded(WEIGHER_GROUP, name, WEIGHERS): multiplier
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
    return (_watched_filter if group == FILTER_GROUP else _watched_weigher)(name, function)


def _watched_filter(name: str, function: Filter) -> Filter:
    """Return the filter, checked: an exception or a malformed result becomes `Broken`, by name."""

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
        # Not the plugin's own text, which may hold anything: owners of instances read the fault.
        _log.error("a plugin has failed", kind=kind, name=name, exc_info=error)
        what = f"{type(error).__name__}: the scheduler's log has it"
        raise Broken(f"{kind}_failed", f"{kind} {name} raised {what}") from error
