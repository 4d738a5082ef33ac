"""Choose a host: filter all, weigh what is left, and fit in that order until one takes it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from conductor.scheduling.checks import EXAMPLES, Check, Removal, nearest_of, sentence
from conductor.scheduling.demand import Demand
from conductor.scheduling.fits import Answers, Fits, Lack
from conductor.scheduling.fleet import Fleet, Mask
from conductor.scheduling.ranking import Ranking, RunnerUp, best_first, ranked, runner_up
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.records import Host
from models.errors import NoValidHost
from models.hardware.guest import Placement


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
    answers = fits.of(demand.shape, fleet, pack=settings.pack)
    ranking = ranked(alive & ~answers.refused(alive), demand, fleet, settings)
    subset = settings.subset_of(len(ranking.rows))
    order = best_first(ranking, demand, fleet, subset, chance)
    found = list(islice(_taking(order, ranking, answers), settings.alternates + 1))
    removals += answers.removals(answers.refused(alive))
    if not found:
        return NoHost(demand, len(fleet), tuple(removals))
    hosts = [fleet.hosts[ranking.rows[place]] for place, _ in found]
    first, placement = found[0]
    second = found[1][0] if len(found) > 1 else None
    return Selection(
        demand,
        hosts[0],
        placement,
        tuple(host.name for host in hosts[1:]),
        tuple(
            (host.name, float(ranking.scores[place]))
            for host, (place, _) in zip(hosts, found, strict=True)
        ),
        len(fleet),
        tuple(removals),
        len(ranking.rows),
        None if second is None else runner_up(ranking, demand, fleet, first, second),
        subset,
    )


def _taking(
    order: Iterable[int], ranking: Ranking, answers: Answers
) -> Iterator[tuple[int, Placement | None]]:
    """Yield the places in the ranking whose hosts take the demand, and where on them."""
    for place in order:
        answer = answers.fit(int(ranking.rows[place]))
        if not isinstance(answer, Lack):
            yield place, answer


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
    have = check.have(rows)
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
