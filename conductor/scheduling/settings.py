"""What an operator may choose about scheduling, read once and passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conductor.scheduling.checks import Filter
from conductor.scheduling.demand import Demand
from conductor.scheduling.filters import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.weighers import PACK, SPREAD, Weigher


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """How hosts are chosen.

    `alternates` are chosen beside each host, from the same checks. A view of the fleet is at
    most `refresh_s` old when it says yes, and fresh when it says no. A host is down when
    it has not been heard of for `down_after_s`. Somebody else moving first is answered by
    looking again, at most `tries` times.
    """

    strategy: Literal["spread", "pack"] = "spread"
    alternates: int = 2
    refresh_s: float = 0.5
    down_after_s: float = 30.0
    tries: int = 10
    filters: tuple[Filter, ...] = DEFAULT_FILTERS
    weighers: tuple[tuple[Weigher, float], ...] | None = None

    @property
    def pack(self) -> bool:
        """Whether used hosts and NUMA cells come before empty ones."""
        return self.strategy == "pack"

    def filters_for(self, demand: Demand) -> tuple[Filter, ...]:
        """The filters in force for a demand: of a forced one, the physical ones."""
        if demand.forced:
            return tuple(each for each in self.filters if each in PHYSICAL)
        return self.filters

    @property
    def weights(self) -> tuple[tuple[Weigher, float], ...]:
        """The weighers in force: those listed, else those of the strategy."""
        return self.weighers or (PACK if self.pack else SPREAD)
