"""What this scheduler has been asked lately, so that it can keep room for more of the same.

Habits only weigh: they never rule a host out, and a scheduler that starts without any
learns them within a few hundred requests.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Final

from conductor.scheduling.demand import Demand, Shape

REMEMBERED: Final = 1_000
"""After so many requests everything before them counts half."""

HOMES_AT_MOST: Final = 1_000


class Habits:
    """How often each shape was asked for, and where groups that stay together live."""

    def __init__(self) -> None:
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

    def note_placed(self, demand: Demand, host: str) -> None:
        """Remember where a group that has to stay together is."""
        rule = demand.group
        if rule is None or not (rule.hard and rule.together):
            return
        self._homes[rule.name] = (rule.scope, host)
        self._homes.move_to_end(rule.name)
        if len(self._homes) > HOMES_AT_MOST:
            self._homes.popitem(last=False)

    @property
    def asked(self) -> Counter[Shape]:
        """How often each shape was asked for; what is long ago counts less."""
        return self._asked

    def homes(self, besides: str | None) -> Iterator[tuple[str, str]]:
        """Yield scope and host of every group's home but one group's own."""
        for group, home in self._homes.items():
            if group != besides:
                yield home
