"""Choose a host: filter all, weigh what is left, and fit in that order until one takes it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from conductor.placement.local.host_claims import HostAllocation, charged
from conductor.scheduling.fleet.filter_verdicts import (
    EXAMPLES,
    Check,
    Removal,
    nearest_of,
    sentence,
)
from conductor.scheduling.fleet.fit_cache import Answers, Fits, Lack
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Mask
from conductor.scheduling.ranking import Ranking, RunnerUp, best_first, ranked, runner_up
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shared_providers import (
    NO_PROVIDERS,
    NO_PROVIDERS_TEXTS,
    Shares,
    shares_on,
)
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.records import Host
from models.errors import NoValidHost
from models.hardware import FrozenMap, Placement


@dataclass(frozen=True, slots=True)
class Selection:
    """The host chosen for an instance, as it was seen, and where on it; then the next best.

    `possible` of all `hosts` passed every filter; `drawn_from` so many best one was drawn.
    `shares` is what it takes of the host and of providers beside it.
    """

    spec: RequestSpec
    host: Host
    placement: Placement | None
    alternates: tuple[str, ...]
    scores: tuple[tuple[str, float], ...]
    hosts: int
    removals: tuple[Removal, ...]
    possible: int = 0
    runner_up: RunnerUp | None = None
    drawn_from: int = 1
    shares: Shares = field(default_factory=lambda: Shares(FrozenMap({})))

    @property
    def holding(self) -> HostAllocation:
        """What the instance would hold of the host."""
        spec = self.spec
        return HostAllocation(spec.instance_id, spec.project_id, self.placement, self.shares.own)

    def to_json(self) -> dict[str, Any]:
        """Return the story of the choice, as kept in decisions."""
        second = {} if self.runner_up is None else {"runner_up": self.runner_up.to_json()}
        drawn = {} if self.drawn_from == 1 else {"drawn_from": self.drawn_from}
        groups = {"groups": dict(self.shares.groups)} if self.shares.groups else {}
        return {
            "hosts": self.hosts,
            "possible": self.possible,
            "checks": [removal.to_json() for removal in self.removals],
            "scores": [[name, round(score, 6)] for name, score in self.scores],
            "alternates": list(self.alternates),
            **second,
            **drawn,
            **groups,
        }


@dataclass(frozen=True, slots=True)
class NoHost:
    """Why an instance fits nowhere: every host is counted under the first check it failed."""

    spec: RequestSpec
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
    spec: RequestSpec,
    fleet: Fleet,
    settings: SchedulingSettings,
    fits: Fits,
    chance: random.Random | None = None,
) -> Selection | NoHost:
    """Return the best host that passes every check, or why none does.

    `fits` remembers answers of the fitter between calls; it changes no answer. `chance` draws
    one of the best where the settings say so.
    """
    alive, removals = filtered(spec, fleet, settings)
    answers = fits.of(spec.shape, fleet, pack=settings.pack)
    ranking = ranked(alive & ~answers.refused(alive), spec, fleet, settings)
    subset = settings.subset_of(len(ranking.rows))
    order = best_first(ranking, spec, fleet, subset, chance)
    search = _Search(spec, fleet, ranking, answers)
    found = list(islice(search.taking(order), settings.alternates + 1))
    removals += answers.removals(answers.refused(alive))
    removals += search.removals()
    if not found:
        return NoHost(spec, len(fleet), tuple(removals))
    first = found[0]
    second = found[1].place if len(found) > 1 else None
    return Selection(
        spec,
        first.host,
        first.placement,
        tuple(taking.host.name for taking in found[1:]),
        tuple((taking.host.name, float(ranking.scores[taking.place])) for taking in found),
        len(fleet),
        tuple(removals),
        len(ranking.rows),
        None if second is None else runner_up(ranking, spec, fleet, first.place, second),
        subset,
        first.shares,
    )


def put_on(fleet: Fleet, chosen: Selection, now: float) -> None:
    """Change the fleet as if the selection had been claimed; a rehearsal takes it back."""
    fleet.put(charged(chosen.host, [chosen.holding], now))
    fleet.beside = fleet.beside.charged(chosen.shares.beside)


@dataclass(frozen=True, slots=True)
class _Taking:
    """A host that takes the demand: its place in the ranking, where on it, what of what."""

    place: int
    host: Host
    placement: Placement | None
    shares: Shares


class _Search:
    """Asks hosts in order whether they take the demand, and notes whose providers do not."""

    def __init__(self, spec: RequestSpec, fleet: Fleet, ranking: Ranking, answers: Answers) -> None:
        self._demand = spec
        self._fleet = fleet
        self._ranking = ranking
        self._answers = answers
        self._without: list[str] = []

    def taking(self, order: Iterable[int]) -> Iterator[_Taking]:
        """Yield the hosts that take the demand, by place in the ranking."""
        fleet, spec = self._fleet, self._demand
        for place in order:
            row = int(self._ranking.rows[place])
            answer = self._answers.fit(row)
            if isinstance(answer, Lack):
                continue
            host = fleet.hosts[row]
            shares = shares_on(host, spec.shape.request, fleet.beside, spec.held)
            if shares is None:
                self._without.append(host.name)
            else:
                yield _Taking(place, host, answer, shares)

    def removals(self) -> Iterator[Removal]:
        """Yield how many hosts had no providers for what is asked together."""
        if self._without:
            examples = tuple(self._without[:EXAMPLES])
            yield Removal(NO_PROVIDERS, NO_PROVIDERS_TEXTS, len(self._without), examples)


def filtered(
    spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings
) -> tuple[Mask, list[Removal]]:
    """Return which rows pass every filter, and what removed the others, each counted once."""
    alive = np.ones(len(fleet), np.bool_)
    removals = []
    for iterable in settings.filters_for(spec):
        for check in iterable(spec, fleet):
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
