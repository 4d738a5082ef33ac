"""Choose a host: filter all, weigh what is left, and fit in that order until one takes it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conductor.scheduling.checks import Check, Removal, nearest_of, sentence
from conductor.scheduling.demand import Demand
from conductor.scheduling.fits import Fits, Lack
from conductor.scheduling.fleet import Fleet, Mask
from conductor.scheduling.ranking import RunnerUp, best_first, ranked, runner_up
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.records import Host
from models.errors import NoValidHost
from models.hardware.guest import Placement

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """The host chosen for an instance, as it was seen, and where on it; then the next best.

    `possible` of all `hosts` passed every filter; `drawn_from` so many best one was drawn.
    """

    demand: Demand
    host: Host
    placement: Placement | None
    alternates: tuple[str, ...]
    scores: tuple[tuple[str, float], ...]
    hosts: int
    removals: tuple[Removal, ...]
    possible: int = 0
    runner_up: RunnerUp | None = None
    drawn_from: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the story of the choice, as kept in decisions."""
        second = {} if self.runner_up is None else {"runner_up": self.runner_up.to_json()}
        drawn = {} if self.drawn_from == 1 else {"drawn_from": self.drawn_from}
        return {
            "hosts": self.hosts,
            "possible": self.possible,
            "checks": [removal.to_json() for removal in self.removals],
            "scores": [[name, round(score, 6)] for name, score in self.scores],
            "alternates": list(self.alternates),
            **second,
            **drawn,
        }


@dataclass(frozen=True, slots=True)
class NoHost:
    """Why an instance fits nowhere: every host is counted under the first check it failed."""

    demand: Demand
    hosts: int
    removals: tuple[Removal, ...]

    def __str__(self) -> str:
        return sentence(self.hosts, self.removals)

    def to_json(self) -> dict[str, Any]:
        """Return the story of the refusal, as kept in decisions."""
        nearest = nearest_of(self.removals)
        return {
            "hosts": self.hosts,
            "checks": [removal.to_json() for removal in self.removals],
            **({} if nearest is None else {"nearest": nearest}),
        }

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
    alive, removals = filtered(demand, fleet, settings)
    ranking = ranked(alive, demand, fleet, settings)
    subset = settings.subset_of(len(ranking.rows))
    order = best_first(ranking, demand, fleet, subset, chance)
    hosts = ((place, fleet.hosts[ranking.rows[place]]) for place in order)
    found, misfits = _fitting(hosts, demand, settings, fits)
    removals += misfits
    if not found:
        return NoHost(demand, len(fleet), tuple(removals))
    first, host, placement = found[0]
    second = found[1][0] if len(found) > 1 else None
    return Selection(
        demand,
        host,
        placement,
        tuple(other.name for _, other, _ in found[1:]),
        tuple((each.name, float(ranking.scores[place])) for place, each, _ in found),
        len(fleet),
        tuple(removals),
        len(ranking.rows),
        None if second is None else runner_up(ranking, demand, fleet, first, second),
        subset,
    )


def _fitting(
    hosts: Iterable[tuple[int, Host]], demand: Demand, settings: SchedulingSettings, fits: Fits
) -> tuple[list[tuple[int, Host, Placement | None]], list[Removal]]:
    """Return the first hosts that take the demand, as many as are asked for, and who did not."""
    lacking: dict[str, list[tuple[Lack, str]]] = {}
    found: list[tuple[int, Host, Placement | None]] = []
    for place, host in hosts:
        answer = fits.fit(demand.shape, host, pack=settings.pack)
        if isinstance(answer, Lack):
            lacking.setdefault(answer.code, []).append((answer, host.name))
            continue
        found.append((place, host, answer))
        if len(found) > settings.alternates:
            break
    return found, [_misfits(each) for each in lacking.values()]


def filtered(
    demand: Demand, fleet: Fleet, settings: SchedulingSettings
) -> tuple[Mask, list[Removal]]:
    """Return which rows pass every filter, and what removed the others, each counted once."""
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
