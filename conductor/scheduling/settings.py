"""What an operator may choose about scheduling, read once and passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from conductor.scheduling.filters.filter_table import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.fleet.filter_verdicts import Filter
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.weigher_table import PACK, SPREAD, Weigher

ONE_IN: Final = 128
MOST_SPREAD: Final = 64
MOST_PACKED: Final = 16


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """How hosts are selected.

    So many `alternates` go with each selected host. The cached fleet is at most `refresh_s` old
    for a selection, and fresh for a refusal. A host is down after `down_after_s` without a
    heartbeat. A conflict with another writer is retried, at most `tries` times. With a `seed`, one
    of the `subset` best hosts is drawn, so that schedulers with other seeds seldom collide.
    """

    strategy: Literal["spread", "pack"] = "spread"
    alternates: int = 2
    refresh_s: float = 0.5
    down_after_s: float = 30.0
    tries: int = 10
    seed: int | None = None
    subset: int | None = None
    filters: tuple[Filter, ...] = DEFAULT_FILTERS
    weighers: tuple[tuple[Weigher, float], ...] | None = None

    @property
    def pack(self) -> bool:
        """Whether used hosts and NUMA cells come before empty ones."""
        return self.strategy == "pack"

    def subset_of(self, candidates: int) -> int:
        """How many of so many candidates one is drawn from: as configured, else a small share."""
        if self.seed is None:
            return 1
        if self.subset is not None:
            return max(1, self.subset)
        most = MOST_PACKED if self.pack else MOST_SPREAD
        return max(1, min(most, candidates // ONE_IN))

    def filters_for(self, spec: RequestSpec) -> tuple[Filter, ...]:
        """The filters in force for a request spec: of a forced one, the physical ones."""
        if spec.forced:
            return tuple(known for known in self.filters if known in PHYSICAL)
        return self.filters

    @property
    def weights(self) -> tuple[tuple[Weigher, float], ...]:
        """The weighers in force: those listed, else those of the strategy."""
        return self.weighers or (PACK if self.pack else SPREAD)
