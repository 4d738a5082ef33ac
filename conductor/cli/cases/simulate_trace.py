"""Schedule a request trace over a whole fleet, by the code that production runs, and sum it up."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.progress import Progress

from conductor.cli.rendering.output import Output, show_one, side_console
from conductor.cli.rendering.text_tables import fields_of
from conductor.scheduling.analysis.fleet_simulation import RACK_RULES, Placed, Simulation
from conductor.scheduling.analysis.request_trace import (
    TraceHost,
    TraceRequest,
    read_hosts,
    read_racks,
    read_requests,
)
from conductor.settings import read_settings
from models.errors import Rejected


class Strategy(StrEnum):
    """Whether hosts fill up one after the other or evenly."""

    PACK = "pack"
    SPREAD = "spread"


class Groups(StrEnum):
    """What becomes of the group rules of a trace."""

    HONOUR = "honour"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run comes to; times are of decision and claim, one request at a time."""

    requests: int
    placed: int
    rejected: int
    hosts_used: int
    seconds: float
    decisions_per_s: float
    p50_ms: float
    p99_ms: float
    rejected_by_reason: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the summary of the contract."""
        return {
            "requests": self.requests,
            "placed": self.placed,
            "rejected": self.rejected,
            "hosts_used": self.hosts_used,
            "seconds": round(self.seconds, 3),
            "decisions_per_s": round(self.decisions_per_s, 1),
            "p50_ms": round(self.p50_ms, 3),
            "p99_ms": round(self.p99_ms, 3),
            "rejected_by_reason": self.rejected_by_reason,
        }


def simulate(  # noqa: PLR0913 - an option each, as the command line has them
    hosts: Annotated[Path, typer.Option(help="CSV: CPU1,RAM1,CPU2,RAM2, free, RAM in GiB.")],
    requests: Annotated[
        Path, typer.Option(help="CSV: flavor_vcpus,flavor_ram,numa[,strategy,group,domain].")
    ],
    racks: Annotated[Path | None, typer.Option(help="CSV: host_id,rack_id.")] = None,
    groups: Annotated[Groups, typer.Option(help="Whether group rules count.")] = Groups.HONOUR,
    strategy: Annotated[Strategy, typer.Option(help="How hosts fill up.")] = Strategy.PACK,
    placements: Annotated[
        Path | None, typer.Option(help="Write one JSON line a request here.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Only so many requests.")] = None,
    output: Output = None,
) -> None:
    """Place a trace on a fleet, one request after the other, without any service."""
    read_settings()
    fleet = read_hosts(hosts, read_racks(racks) if racks else {})
    trace = read_requests(requests)[:limit]
    if groups is Groups.IGNORE:
        trace = [
            replace(trace_request, strategy=None, group=None, domain=None)
            for trace_request in trace
        ]
    _check_racks(fleet, trace)
    with _lines_to(placements) as out, _progress(len(trace)) as watch:
        summary = run(fleet, trace, strategy, watch, out)
    show_one(summary.to_json(), output, lambda: fields_of(summary.to_json()))


def run(
    hosts: Sequence[TraceHost],
    requests: Sequence[TraceRequest],
    strategy: Strategy,
    watch: Watch,
    out: TextIO | None = None,
) -> Summary:
    """Place every request, write its placements line to `out`, and return the summary."""
    simulation = Simulation(hosts, strategy.value)
    began = time.perf_counter()
    placed = []
    for item in watch(simulation.run(requests)):
        placed.append(replace(item, cells=(), reason=None))  # what is written need not be kept
        if out is not None:
            out.write(json.dumps(item.to_json()) + "\n")
    return summarized(placed, time.perf_counter() - began)


def summarized(placed: Sequence[Placed], seconds: float) -> Summary:
    """Return the sums over all answers; percentiles are of the nearest rank."""
    took_ms = sorted(item.took_s * 1000 for item in placed)
    refused = Counter(item.code or "unknown" for item in placed if item.host is None)
    return Summary(
        requests=len(placed),
        placed=len(placed) - refused.total(),
        rejected=refused.total(),
        hosts_used=len({item.host for item in placed if item.host is not None}),
        seconds=seconds,
        decisions_per_s=len(placed) / seconds if seconds else 0.0,
        p50_ms=_percentile(took_ms, 50),
        p99_ms=_percentile(took_ms, 99),
        rejected_by_reason=dict(refused.most_common()),
    )


class Watch:
    """Hands answers through; a terminal sees how far it is."""

    def __call__(self, answers: Iterable[Placed]) -> Iterator[Placed]:
        """Yield every answer."""
        yield from answers


class _Bar(Watch):
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("placing", total=total)

    def __call__(self, answers: Iterable[Placed]) -> Iterator[Placed]:
        for answer in answers:
            self._progress.advance(self._task)
            yield answer


@contextmanager
def _progress(total: int) -> Iterator[Watch]:
    if not sys.stderr.isatty():
        yield Watch()
        return
    with Progress(console=side_console(), transient=True) as progress:
        yield _Bar(progress, total)


@contextmanager
def _lines_to(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        message = f"placements is {path}: {error.strerror}"
        raise Rejected("file_unwritable", message, key="placements") from None


def _check_racks(hosts: Sequence[TraceHost], requests: Sequence[TraceRequest]) -> None:
    ruled = next((request.strategy for request in requests if request.strategy in RACK_RULES), None)
    if ruled is not None and all(host.rack is None for host in hosts):
        raise Rejected(
            "racks_missing",
            f"racks is missing: {ruled} groups are about racks (or leave the rules out with "
            "--groups ignore)",
            key="racks",
        )


def _percentile(rising: Sequence[float], percent: int) -> float:
    if not rising:
        return 0.0
    return rising[max(0, -(-len(rising) * percent // 100) - 1)]
