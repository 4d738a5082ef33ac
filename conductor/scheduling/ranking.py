"""Ranks possible hosts by weighers, and records what decided between the best and the next."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Mask, Numbers, Tagged
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.settings import SchedulingSettings
from models.messages.catalogue import OWN_MULTIPLIER

CHEAP_LOOKS: Final = 8
ONE_TIER: Final = 0.1
"""Hosts this much worse differ in more than how full they are, and are not drawn."""

BY_NAME, BY_CHANCE, BY_PREFERENCE = "name", "chance", "alternate"
"""What decides where no weigher does: host name, the draw, the order of earlier alternates."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores of the rows that passed all filters, with what each weigher added to them."""

    rows: Numbers
    scores: Floats
    parts: tuple[tuple[str, Floats | float], ...]


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The host that came second, by how much, and what it would have needed to come first.

    `decided_by` is the weigher that set the two furthest apart, or what decides between equals;
    `has` and `best` are what it gave to the runner-up and to the selected host.
    """

    host: str
    behind: float
    decided_by: str
    has: float | None = None
    best: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as kept in decisions."""
        numbers = {"has": self.has, "best": self.best}
        return {
            "host": self.host,
            "behind": round(self.behind, 6),
            "decided_by": self.decided_by,
            **{name: round(value, 6) for name, value in numbers.items() if value is not None},
        }


def ranked(alive: Mask, spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> Ranking:
    """Weigh the rows that are left."""
    rows = np.flatnonzero(alive)
    scores = np.zeros(len(rows))
    parts = []
    if len(rows):
        for weigher, multiplier in settings.weights:
            name = weigher.__name__
            of_own = fleet.tagged(f"{name}{OWN_MULTIPLIER}")
            own = _multipliers(of_own, multiplier, fleet)[rows] if of_own else multiplier
            part = own * weigher(spec, fleet, rows)
            scores += part
            parts.append((name, part))
    return Ranking(rows, scores, tuple(parts))


def best_first(
    ranking: Ranking, spec: RequestSpec, fleet: Fleet, subset: int, chance: random.Random | None
) -> Iterator[int]:
    """Yield places in the ranking: preferred hosts, then by score, equals by name.

    The `subset` best are shuffled. The first few are found by argmax, which is cheaper than
    sorting all.
    """
    left = ranking.scores.copy()
    for name in spec.preferred:
        for at in np.flatnonzero(ranking.rows == fleet.rows.get(name, -1)):
            yield int(at)
            left[at] = -np.inf
    for place in _drawn(left, subset, chance):
        yield place
        left[place] = -np.inf
    for _ in range(min(CHEAP_LOOKS, len(left))):
        first = int(left.argmax())
        if left[first] == -np.inf:
            return
        yield first
        left[first] = -np.inf
    for at in np.argsort(-left, kind="stable"):
        if left[at] != -np.inf:
            yield int(at)


def runner_up(
    ranking: Ranking, spec: RequestSpec, fleet: Fleet, selected: int, second: int
) -> RunnerUp:
    """Return what decided against the second place of a ranking."""
    host = fleet.hosts[ranking.rows[second]].name
    behind = float(ranking.scores[selected] - ranking.scores[second])
    if fleet.hosts[ranking.rows[selected]].name in spec.preferred:
        return RunnerUp(host, behind, BY_PREFERENCE)
    if behind <= 0:
        return RunnerUp(host, behind, BY_NAME if behind == 0 and selected < second else BY_CHANCE)
    gaps = [
        (float(part[selected] - part[second]), name, part)
        for name, part in ranking.parts
        if not isinstance(part, float | int)
    ]
    _, name, part = max(gaps, key=lambda gap: gap[0])
    return RunnerUp(host, behind, name, float(part[second]), float(part[selected]))


def _drawn(left: Floats, subset: int, chance: random.Random | None) -> list[int]:
    """Return the best few, shuffled; none that is worse than the best by a tier."""
    if chance is None or subset < 2 or not len(left):
        return []
    few = np.argpartition(-left, min(subset, len(left)) - 1)[:subset]
    drawn = [int(at) for at in np.sort(few[left[few] > left.max() - ONE_TIER])]
    chance.shuffle(drawn)
    return drawn


def _multipliers(of_own: Sequence[Tagged], usual: float, fleet: Fleet) -> Floats:
    """Return every host's multiplier: the least of its aggregates, else the usual one."""
    least = np.full(len(fleet), np.inf)
    for tagged in of_own:
        with suppress(ValueError):
            np.minimum(least, float(tagged.value), out=least, where=tagged.hosts)
    return np.where(np.isfinite(least), least, usual)
