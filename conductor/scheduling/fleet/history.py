"""What this scheduler was requested lately, and which hosts failed what was placed there.

In-process and lost on restart: only weighers use it, and it is rebuilt within a few hundred
requests.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from conductor.scheduling.request.instance_shape import Shape
from conductor.scheduling.request.request_spec import RequestSpec

REMEMBERED: Final = 1_000
"""After so many requests all earlier ones count half."""

HOMES_AT_MOST: Final = 1_000

LEAST_FAILURE: Final = 1 / 16
FORGIVEN_S: Final = 600.0
"""After so many seconds a failure of a host counts half."""


class SchedulingHistory:
    """How often each shape was requested, where groups are, and which hosts failed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, float]] = {}
        self._requested: Counter[Shape] = Counter()
        self._since = 0
        self._homes: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def note_requested(self, shape: Shape) -> None:
        """Count one more request for a shape."""
        self._requested[shape] += 2
        self._since += 1
        if self._since >= REMEMBERED:
            self._since = 0
            halved = {shape: count // 2 for shape, count in self._requested.items() if count > 1}
            self._requested = Counter(halved)

    def note_placed(self, spec: RequestSpec, host: str) -> None:
        """Note the host of a group that has to stay together."""
        rule = spec.group
        if rule is None or not (rule.hard and rule.together):
            return
        self._homes[rule.name] = (rule.scope, host)
        self._homes.move_to_end(rule.name)
        if len(self._homes) > HOMES_AT_MOST:
            self._homes.popitem(last=False)

    def note_failed(self, hosts: Iterable[str]) -> None:
        """Count one more failure for each of these hosts."""
        now = self._clock()
        for host in hosts:
            self._failed[host] = (self._failures_of(host, now) + 1.0, now)

    def failures(self) -> Mapping[str, float]:
        """Return how often hosts failed, with exponential decay; tiny counts are dropped."""
        now = self._clock()
        left = {host: self._failures_of(host, now) for host in self._failed}
        forgiven = [host for host, count in left.items() if count < LEAST_FAILURE]
        for host in forgiven:
            del self._failed[host], left[host]
        return left

    def _failures_of(self, host: str, now: float) -> float:
        count, at = self._failed.get(host, (0.0, now))
        return float(count * 0.5 ** ((now - at) / FORGIVEN_S))

    @property
    def requested(self) -> Counter[Shape]:
        """How often each shape was requested; older requests count less."""
        return self._requested

    def homes(self, besides: str | None) -> Iterator[tuple[str, str]]:
        """Yield scope and host of the home of every group except one."""
        for group, home in self._homes.items():
            if group != besides:
                yield home
