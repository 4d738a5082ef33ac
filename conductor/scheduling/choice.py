"""Choose a host: filter all, weigh what is left, and fit in that order until one takes it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from conductor.scheduling.checks import Check, Removal, sentence
from conductor.scheduling.demand import Demand
from conductor.scheduling.fits import Fits, Lack
from conductor.scheduling.fleet import Fleet, Mask, Numbers, Tagged
from conductor.scheduling.room import Floats
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.records import Host
from models.errors import NoValidHost
from models.hardware.guest import Placement

EXAMPLES = 3
CHEAP_LOOKS = 8
ONE_TIER = 0.1
"""Hosts this much worse differ in more than in how full they are, and are not drawn."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The host chosen for an instance, as it was seen, and where on it; then the next best."""

    demand: Demand
    host: Host
    placement: Placement | None
    alternates: tuple[str, ...]
    scores: tuple[tuple[str, float], ...]
    hosts: int
    removals: tuple[Removal, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the story of the choice, as kept in decisions."""
        return {
            "hosts": self.hosts,
            "checks": [removal.to_json() for removal in self.removals],
            "scores": [[name, round(score, 6)] for name, score in self.scores],
            "alternates": list(self.alternates),
        }


@dataclass(frozen=True, slots=True)
class NoHost:
    """Why an instance fits nowhere: every host is counted under the first check it failed."""

    demand: Demand
    hosts: int
    removals: tuple[Removal, ...]

    def __str__(self) -> str:
        return sentence(self.hosts, self.removals)

    def error(self, prefix: str = "") -> NoValidHost:
        """Return the answer as the error that callers see."""
        reasons = [removal.to_json() for removal in self.removals]
        return NoValidHost("no_valid_host", prefix + str(self), reasons=reasons, hosts=self.hosts)


def choose(
    demand: Demand,
    fleet: Fleet,
    settings: SchedulingSettings,
    fits: Fits,
    chance: random.Random | None = None,
) -> Selection | NoHost:
    """Return the best host that passes every check, or why none does.

    `fits` remembers answers of the fitter between calls; it changes no answer. `chance` draws
    one of the best where the settings say so.
    """
    alive, removals = _filtered(demand, fleet, settings)
    lacking: dict[str, list[tuple[Lack, str]]] = {}
    found: list[tuple[int, float, Placement | None]] = []
    for row, score in _best_first(alive, demand, fleet, settings, chance):
        answer = fits.fit(demand.shape, fleet.hosts[row], pack=settings.pack)
        if isinstance(answer, Lack):
            lacking.setdefault(answer.code, []).append((answer, fleet.hosts[row].name))
            continue
        found.append((row, score, answer))
        if len(found) > settings.alternates:
            break
    removals += [_misfits(each) for each in lacking.values()]
    if not found:
        return NoHost(demand, len(fleet), tuple(removals))
    row, _, placement = found[0]
    names = [fleet.hosts[row].name for row, _, _ in found]
    scores = tuple((name, score) for name, (_, score, _) in zip(names, found, strict=True))
    return Selection(
        demand,
        fleet.hosts[row],
        placement,
        tuple(names[1:]),
        scores,
        len(fleet),
        tuple(removals),
    )


def _filtered(
    demand: Demand, fleet: Fleet, settings: SchedulingSettings
) -> tuple[Mask, list[Removal]]:
    alive = np.ones(len(fleet), np.bool_)
    removals = []
    for each in settings.filters_for(demand):
        for check in each(demand, fleet):
            out = alive & ~check.passed
            if out.any():
                removals.append(_removal(check, out, fleet))
                alive &= check.passed
    return alive, removals


def _removal(check: Check, out: Mask, fleet: Fleet) -> Removal:
    rows = np.flatnonzero(out)
    examples = tuple(fleet.hosts[row].name for row in rows[:EXAMPLES])
    if check.have is None:
        return Removal(check.code, check.lacks, len(rows), examples)
    have = check.have()[rows]
    best = int(have.argmax())
    return Removal(
        check.code,
        check.lacks,
        len(rows),
        examples,
        check.need,
        int(have[best]),
        fleet.hosts[rows[best]].name,
        check.unit,
    )


def _misfits(lacking: Sequence[tuple[Lack, str]]) -> Removal:
    nearest, name = max(lacking, key=lambda each: each[0].have)
    return Removal(
        nearest.code,
        nearest.lacks,
        len(lacking),
        tuple(host for _, host in lacking[:EXAMPLES]),
        nearest.need,
        nearest.have,
        name,
    )


def _best_first(
    alive: Mask,
    demand: Demand,
    fleet: Fleet,
    settings: SchedulingSettings,
    chance: random.Random | None,
) -> Iterator[tuple[int, float]]:
    """Yield rows and scores: preferred hosts first, then by score, equals in order of name.

    The first few are looked up one by one, which is cheaper than sorting all of them.
    """
    rows = np.flatnonzero(alive)
    if not len(rows):
        return
    scores = _scores(demand, fleet, rows, settings)
    left = scores.copy()
    for name in demand.preferred:
        for at in np.flatnonzero(rows == fleet.rows.get(name, -1)):
            yield int(rows[at]), float(scores[at])
            left[at] = -np.inf
    for place in _drawn(left, settings.subset_of(len(rows)), chance):
        yield int(rows[place]), float(scores[place])
        left[place] = -np.inf
    for _ in range(min(CHEAP_LOOKS, len(rows))):
        at = left.argmax()
        if left[at] == -np.inf:
            return
        yield int(rows[at]), float(scores[at])
        left[at] = -np.inf
    for at in np.argsort(-left, kind="stable"):
        if left[at] != -np.inf:
            yield int(rows[at]), float(scores[at])


def _drawn(left: Floats, subset: int, chance: random.Random | None) -> list[int]:
    """Return the best few in an order of chance; none that is worse than the best by a tier."""
    if chance is None or subset < 2:
        return []
    few = np.argpartition(-left, min(subset, len(left)) - 1)[:subset]
    drawn = [int(at) for at in np.sort(few[left[few] > left.max() - ONE_TIER])]
    chance.shuffle(drawn)
    return drawn


def _scores(demand: Demand, fleet: Fleet, rows: Numbers, settings: SchedulingSettings) -> Floats:
    scores = np.zeros(len(rows))
    for weigher, multiplier in settings.weights:
        of_own = fleet.tagged(f"{weigher.__name__}_weight_multiplier")
        weights = weigher(demand, fleet, rows)
        own = _multipliers(of_own, multiplier, fleet)[rows] if of_own else multiplier
        scores += own * weights
    return scores


def _multipliers(of_own: Sequence[Tagged], usual: float, fleet: Fleet) -> Floats:
    """Return every host's multiplier: the least of its aggregates, else the usual one."""
    least = np.full(len(fleet), np.inf)
    for each in of_own:
        with suppress(ValueError):
            np.minimum(least, float(each.value), out=least, where=each.hosts)
    return np.where(np.isfinite(least), least, usual)
