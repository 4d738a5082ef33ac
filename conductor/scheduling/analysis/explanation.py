"""Why a host was selected, or none: a decision's record in words, and the verdict on every host.

A record has counts, examples and the nearest host of each check, never a row per host, so that it
is cheap to keep. Verdicts are recomputed from the fleet as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from conductor.scheduling.fleet.fit_cache import Lack, fit_or_lack
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.ranking import (
    BY_CHANCE,
    BY_NAME,
    BY_PREFERENCE,
    Ranking,
    ranked,
)
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shared_providers import (
    NO_PROVIDERS,
    NO_PROVIDERS_TEXTS,
    allocation_candidate,
)
from conductor.scheduling.settings import SchedulingSettings
from models.json_types import Json

POSSIBLE: Final = "possible"

_BETWEEN_EQUALS: Final = {
    BY_NAME: "the first by name of equals",
    BY_CHANCE: "drawn by chance among equals",
    BY_PREFERENCE: "an alternate of the selection before",
}


def history_of(detail: Json, host: str | None) -> tuple[str, ...]:
    """Return a decision's record in sentences, the outcome first; `host` is None for a refusal."""
    if host is None:
        return tuple(_refusal(detail))
    return tuple(_selection(detail, host))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one host: the first check that it failed, or its score and its parts."""

    host: str
    check: str
    text: str
    need: int | None = None
    have: int | None = None
    score: float | None = None
    weights: Mapping[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are known."""
        fields: dict[str, Any] = {
            "need": self.need,
            "have": self.have,
            "score": None if self.score is None else round(self.score, 6),
            "weights": self.weights,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        return {"host": self.host, "check": self.check, "text": self.text, **known}


def verdicts(spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> list[Verdict]:
    """Return the verdict on every host: those that take the instance first, best first."""
    failed = list(_failures(spec, fleet, settings))
    out = {verdict.host for verdict in failed}
    alive = np.fromiter((host.name not in out for host in fleet.hosts), np.bool_, len(fleet))
    ranking = ranked(alive, spec, fleet, settings)
    passed = []
    for place in np.argsort(-ranking.scores, kind="stable"):
        host = fleet.hosts[ranking.rows[place]]
        answer = fit_or_lack(spec.shape, host, pack=settings.pack)
        if isinstance(answer, Lack):
            text = answer.lacks[0]
            failed.append(Verdict(host.name, answer.code, text, *answer.numbers))
        elif (
            allocation_candidate(host, spec.shape.request, fleet.providers, spec.allocated) is None
        ):
            failed.append(Verdict(host.name, NO_PROVIDERS, NO_PROVIDERS_TEXTS[0]))
        else:
            passed.append(_possible(host.name, ranking, int(place)))
    return [*passed, *sorted(failed, key=lambda verdict: verdict.host)]


def _possible(host: str, ranking: Ranking, place: int) -> Verdict:
    weights = {
        name: round(float(part if isinstance(part, float | int) else part[place]), 6)
        for name, part in ranking.parts
    }
    score = float(ranking.scores[place])
    return Verdict(host, POSSIBLE, "takes it", score=score, weights=weights)


def _failures(spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> Iterator[Verdict]:
    alive = np.ones(len(fleet), np.bool_)
    for host_filter in settings.filters_for(spec):
        for check in host_filter(spec, fleet):
            rows = np.flatnonzero(alive & ~check.passed)
            have = None if check.have is None else check.have(rows)
            for at, row in enumerate(rows):
                had = None if have is None else int(have[at])
                name = fleet.hosts[row].name
                yield Verdict(name, check.code, check.lacks[0], check.need, had)
            alive &= check.passed


def _selection(detail: Json, host: str) -> Iterator[str]:
    hosts, possible = detail.get("hosts", 0), detail.get("possible")
    yield f"{host}, {_of(hosts, possible)}{_removed(detail.get('checks', ()))}"
    planned = detail["scores"][0][0] if detail.get("scores") else host
    if planned != host:
        yield f"{planned} came first and had been taken when it was claimed"
    if detail.get("drawn_from", 1) > 1:
        yield f"drawn from the {detail['drawn_from']} best, so that schedulers seldom collide"
    if detail.get("runner_up"):
        yield _second(detail["runner_up"])
    for suffix, provider in sorted(detail.get("groups", {}).items()):
        yield f"request group {suffix.removeprefix('_')} is served by {provider}"
    if detail.get("alternates"):
        yield f"else {', '.join(detail['alternates'])}"


def _of(hosts: int, possible: int | None) -> str:
    if possible is None:
        return f"of {hosts:,} hosts"
    some = "the only possible host" if possible == 1 else f"of {possible:,} possible hosts"
    return f"{some} of {hosts:,}"


def _second(second: Json) -> str:
    name, why = second["host"], second["decided_by"]
    if why in _BETWEEN_EQUALS:
        return f"{name} came second: the other is {_BETWEEN_EQUALS[why]}"
    return (
        f"{name} came second, {second['behind']:.4g} behind: {why} gave it {second['has']:.4g}, "
        f"the other {second['best']:.4g}; with {second['behind']:.4g} more it had been chosen"
    )


def _refusal(detail: Json) -> Iterator[str]:
    yield str(detail.get("error", {}).get("message", "no host"))
    nearest = detail.get("nearest")
    if nearest:
        short = nearest["need"] - nearest["have"]
        text = next(
            (check["text"] for check in detail["checks"] if check["check"] == nearest["check"]), ""
        )
        yield f"nearest is {nearest['host']}, {short:,} short of {nearest['need']:,}: {text}"
    for check in detail.get("checks", ()):
        if check.get("examples"):
            yield f"{check['text']}, such as {', '.join(check['examples'])}"


def _removed(checks: Iterable[Json]) -> str:
    texts = [str(check.get("text", f"{check['hosts']} {check['check']}")) for check in checks]
    return f" ({'; '.join(texts)})" if texts else ""
