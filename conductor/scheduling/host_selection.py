"""Selects a host: filter all, weigh the rest, fit them in that order until one takes it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from conductor.placement.local.host_claims import HostAllocation, with_allocations
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
    AllocationCandidate,
    allocation_candidate,
)
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Host
from models.errors import NoValidHost
from models.hardware import FrozenMap, Placement


@dataclass(frozen=True, slots=True)
class Selection:
    """The host selected for a request spec, as it was seen, and the placement; then alternates.

    `possible` of all `hosts` passed every filter; it was drawn from the `drawn_from` best.
    `candidate` is what will be allocated from the host and from other providers.
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
    candidate: AllocationCandidate = field(
        default_factory=lambda: AllocationCandidate(FrozenMap({}))
    )

    @property
    def allocation(self) -> HostAllocation:
        """What will be allocated from the host."""
        spec = self.spec
        return HostAllocation(
            spec.instance_id, spec.project_id, self.placement, self.candidate.host_amounts
        )

    def to_json(self) -> dict[str, Any]:
        """Return the record of the selection, as kept in decisions."""
        second = {} if self.runner_up is None else {"runner_up": self.runner_up.to_json()}
        drawn = {} if self.drawn_from == 1 else {"drawn_from": self.drawn_from}
        groups = {"groups": dict(self.candidate.groups)} if self.candidate.groups else {}
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
    """Why no host takes an instance: every host is counted under the first check it failed."""

    spec: RequestSpec
    hosts: int
    removals: tuple[Removal, ...]

    def __str__(self) -> str:
        return sentence(self.hosts, self.removals)

    def to_json(self) -> dict[str, Any]:
        """Return the record of the refusal, as kept in decisions."""
        nearest = nearest_of(self.removals)
        return {
            "hosts": self.hosts,
            "checks": [removal.to_json() for removal in self.removals],
            **({} if nearest is None else {"nearest": nearest}),
        }

    def error(self, prefix: str = "") -> NoValidHost:
        """Return the refusal as the error that callers see."""
        reasons = [removal.to_json() for removal in self.removals]
        return NoValidHost("no_valid_host", prefix + str(self), reasons=reasons, hosts=self.hosts)


def select_host(
    spec: RequestSpec,
    fleet: Fleet,
    settings: SchedulingSettings,
    fits: Fits,
    chance: random.Random | None = None,
) -> Selection | NoHost:
    """Return the best host that passes every check, or why none does.

    `fits` caches answers of the fitter between calls. `chance` draws one of the best hosts where
    the settings ask for a subset.
    """
    alive, removals = filtered(spec, fleet, settings)
    answers = fits.of(spec.shape, fleet, pack=settings.pack)
    ranking = ranked(alive & ~answers.refused(alive), spec, fleet, settings)
    subset = settings.subset_of(len(ranking.rows))
    order = best_first(ranking, spec, fleet, subset, chance)
    search = _Search(spec, fleet, ranking, answers)
    found = list(islice(search.fitting(order), settings.alternates + 1))
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
        tuple(fitting.host.name for fitting in found[1:]),
        tuple((fitting.host.name, float(ranking.scores[fitting.place])) for fitting in found),
        len(fleet),
        tuple(removals),
        len(ranking.rows),
        None if second is None else runner_up(ranking, spec, fleet, first.place, second),
        subset,
        first.candidate,
    )


def apply_selection(fleet: Fleet, selection: Selection, now: float) -> None:
    """Change the fleet as if the selection had been claimed; `Fleet.rehearsal` reverts it."""
    fleet.put(with_allocations(selection.host, [selection.allocation], now))
    fleet.providers = fleet.providers.allocate(selection.candidate.provider_amounts)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A host that takes the instance: its place in the ranking, and what would be allocated."""

    place: int
    host: Host
    placement: Placement | None
    candidate: AllocationCandidate


class _Search:
    """Fits hosts in order; counts those whose providers cannot serve all request groups."""

    def __init__(self, spec: RequestSpec, fleet: Fleet, ranking: Ranking, answers: Answers) -> None:
        self._spec = spec
        self._fleet = fleet
        self._ranking = ranking
        self._answers = answers
        self._without: list[str] = []

    def fitting(self, order: Iterable[int]) -> Iterator[_Fitting]:
        """Yield the hosts that take the instance."""
        fleet, spec = self._fleet, self._spec
        for place in order:
            row = int(self._ranking.rows[place])
            answer = self._answers.fit(row)
            if isinstance(answer, Lack):
                continue
            host = fleet.hosts[row]
            candidate = allocation_candidate(
                host, spec.shape.request, fleet.providers, spec.allocated
            )
            if candidate is None:
                self._without.append(host.name)
            else:
                yield _Fitting(place, host, answer, candidate)

    def removals(self) -> Iterator[Removal]:
        """Yield the hosts that passed all filters but have no providers for all groups together."""
        if self._without:
            examples = tuple(self._without[:EXAMPLES])
            yield Removal(NO_PROVIDERS, NO_PROVIDERS_TEXTS, len(self._without), examples)


def filtered(
    spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings
) -> tuple[Mask, list[Removal]]:
    """Return which rows pass every filter, and what removed the others, each counted once."""
    alive = np.ones(len(fleet), np.bool_)
    removals = []
    for host_filter in settings.filters_for(spec):
        for check in host_filter(spec, fleet):
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
