"""What this scheduler has been asked lately, and which hosts failed what was placed there.

Habits only weigh: they never rule a host out, and a scheduler that starts without any
learns them within a few hundred requests.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from conductor.scheduling.request.request_spec import RequestSpec, Shape

REMEMBERED: Final = 1_000
"""After so many requests everything before them counts half."""

HOMES_AT_MOST: Final = 1_000

LEAST_FAILURE: Final = 1 / 16
FORGIVEN_S: Final = 600.0
"""After so many seconds a failure of a host counts half."""


class Habits:
    """How often each shape was asked for, where groups live, and which hosts failed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, float]] = {}
        self._asked: Counter[Shape] = Counter()
        self._since = 0
        self._homes: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def note_asked(self, shape: Shape) -> None:
        """Remember that a shape was asked for once more."""
        self._asked[shape] += 2
        self._since += 1
        if self._since >= REMEMBERED:
            self._since = 0
            halved = {shape: count // 2 for shape, count in self._asked.items() if count > 1}
            self._asked = Counter(halved)

    def note_placed(self, spec: RequestSpec, host: str) -> None:
        """Remember where a group that has to stay together is."""
        rule = spec.group
        if rule is None or not (rule.hard and rule.together):
            return
        self._homes[rule.name] = (rule.scope, host)
        self._homes.move_to_end(rule.name)
        if len(self._homes) > HOMES_AT_MOST:
            self._homes.popitem(last=False)

    def note_failed(self, hosts: Iterable[str]) -> None:
        """Remember that these hosts did not do what had been claimed there."""
        now = self._clock()
        for host in hosts:
            self._failed[host] = (self._failures_of(host, now) + 1.0, now)

    def failures(self) -> Mapping[str, float]:
        """Return how often hosts failed, older failures counting less; forgiven ones not at all."""
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
    def asked(self) -> Counter[Shape]:
        """How often each shape was asked for; what is long ago counts less."""
        return self._asked

    def homes(self, besides: str | None) -> Iterator[tuple[str, str]]:
        """Yield scope and host of every group's home but one group's own."""
        for group, home in self._homes.items():
            if group != besides:
                yield home
