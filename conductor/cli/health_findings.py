"""What `health` finds beside services that answer: queues, hosts, and whatever waits too long.

A finding that is not `ok` is `away` where a service or a process is, and `degraded` where all
answer and yet something does not get on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from conductor.cli.rendering.json_views import HostStatus, host_view, moment, unanswered_view
from conductor.clock_agreement import CLOCK
from conductor.liveness import MOST_UNANSWERED, UNANSWERED_AFTER_S, unanswered
from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.processes.database_access import ALIVE_WITHIN_S
from conductor.settings import Settings
from conductor.store import OperationRecord, Registration, Tally, UnitOfWork
from conductor.upkeep import REFUSED_REPORTS
from models.ids import compute_queue
from models.json_types import JsonDict
from models.messages.internal import CONDUCTOR, DEAD_LETTERS, ECHO, REPORTS, SCHEDULER
from models.units import seconds_text
from tasks.queue_depths import Depth

State: TypeAlias = Literal["ok", "away", "degraded"]
AT_WORK_AT_MOST_S: Final = 300.0
"""So long a dispatch may wait whose host reports that it is at work on it."""
ECHO_WITHIN_S: Final = 20.0
_STALE_FACTOR: Final = 3.0
_NAMED_MOST: Final = 3
MOST_ROWS: Final = 10

_READERS: Final = {
    CONDUCTOR: "conductor",
    REPORTS: "conductor",
    DEAD_LETTERS: "conductor",
    SCHEDULER: "scheduler",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing; `needed` says whether the system is away without it."""

    name: str
    state: State
    needed: bool
    detail: str
    more: JsonDict = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        row = {"name": self.name, "state": self.state, "needed": self.needed}
        return {**row, "detail": self.detail, **self.more}


def of_queues(found: Mapping[str, Depth], hosts_up: Iterable[str]) -> Iterator[Finding]:
    """Return the queues that are missing, or that nobody reads."""
    for queue, role in _READERS.items():
        depth = found.get(queue)
        if depth is None:
            remedy = f"`conductor serve {role}` with an account that may configure declares it"
            yield Finding(f"queue {queue}", "away", True, f"missing: {remedy}")
        elif not depth.consumers:
            remedy = f"`conductor serve {role}` reads it"
            yield _unread(queue, depth, remedy)
    bad = [_host_queue(name, found.get(compute_queue(name))) for name in hosts_up]
    yield from _at_most([finding for finding in bad if finding is not None], "more queues of hosts")


def _host_queue(host: str, depth: Depth | None) -> Finding | None:
    queue = compute_queue(host)
    if depth is None:
        return Finding(f"queue {queue}", "degraded", False, f"missing: {host} hears nothing")
    return None if depth.consumers else _unread(queue, depth, f"{host} hears nothing")


def _unread(queue: str, depth: Depth, remedy: str) -> Finding:
    detail = f"nobody reads it, {depth.messages} messages wait: {remedy}"
    return Finding(f"queue {queue}", "degraded", True, detail, {"messages": depth.messages})


def of_hosts(statuses: Sequence[HostStatus]) -> Finding:
    """Return how many hosts are up; those that an operator has disabled or forced down are fine."""
    views = [host_view(status) for status in statuses]
    states = [view["state"] for view in views]
    up = states.count("up")
    others = ", ".join(
        f"{states.count(state)} {state}" for state in sorted(set(states)) if state != "up"
    )
    wrong = [
        f"{view['name']}: {view['reason']}"
        for view, status in zip(views, statuses, strict=True)
        if view["state"] in ("down", "degraded") and not status.host.forced_down
    ]
    why = "; ".join([*wrong[:3], *([f"{len(wrong) - 3} more"] if len(wrong) > 3 else [])])
    detail = f"{up} of {len(states)} up" + (f" ({others})" if others else "")
    detail += f": {why}" if why else ""
    state: State = "degraded" if wrong else "ok"
    return Finding("hosts", state if up else "away", False, detail)


def of_periodic_work(troubles: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Return what processes have noted of themselves (`conductor.upkeep.troubles`)."""
    for name, why in troubles:
        process, _, part = name.rpartition("/")
        if part == REFUSED_REPORTS:
            yield Finding(f"reports to {process}", "degraded", False, why)
        else:
            # A clock that is off harms nothing: it is the database's that counts.
            yield Finding(f"work of {name}", "away", part != CLOCK, why)


def of_waiting(uow: UnitOfWork) -> Iterator[Finding]:
    """Return dispatches without a reply, messages that are not published, and reports unread."""
    found = unanswered(uow)
    yield from _at_most(
        [_unanswered(record, uow) for record in found], "more dispatches unanswered"
    )
    oldest_at = uow.outbox.oldest_at()
    if oldest_at is not None and uow.now - oldest_at > UNANSWERED_AFTER_S:
        rows = uow.outbox.older_than(uow.now - UNANSWERED_AFTER_S, MOST_UNANSWERED)
        queues = sorted({row.queue for row in rows})
        if queues:
            ago = seconds_text(uow.now - oldest_at)
            detail = f"messages do not leave for {', '.join(queues[:5])}, the oldest for {ago}"
            more = {"messages": len(rows), "since": moment(oldest_at), "queues": queues}
            yield Finding("outbox", "degraded", True, detail, more)
    echo = uow.heartbeats.get(ECHO)
    if echo is not None and uow.now - echo.seen_at > ECHO_WITHIN_S:
        ago = seconds_text(uow.now - echo.seen_at)
        detail = f"no report has been read for {ago}: is the queue {REPORTS} there, bound and read?"
        yield Finding("reports", "degraded", True, detail, {"since": moment(echo.seen_at)})


def _unanswered(record: OperationRecord, uow: UnitOfWork) -> Finding:
    dispatch = unanswered_view(record, uow.now) or {}
    who = dispatch["host"] or "the scheduler"
    for_s = dispatch["for_s"]
    at_work = dispatch["host"] is not None and _is_at_work(uow, dispatch["host"], record.id)
    doing = f"{who} is at work on" if at_work else f"{who} has not answered"
    detail = f"{doing} {dispatch['verb']} for {seconds_text(for_s)}: {record.kind} {record.id}"
    fine = at_work and for_s < AT_WORK_AT_MOST_S
    more = {"operation_id": record.id, "kind": record.kind, **dispatch}
    return Finding("unanswered", "ok" if fine else "degraded", True, detail, more)


def _is_at_work(uow: UnitOfWork, host: str, operation_id: str) -> bool:
    beat = uow.heartbeats.get(host)
    return beat is not None and any(call.get("operation_id") == operation_id for call in beat.work)


def oldest_of(tallies: Iterable[Tally], now: float) -> list[JsonDict]:
    """Return, by kind and by who is waited for, how many operations run and the oldest's age."""
    rows: dict[tuple[str, str], list[float]] = {}
    for tally in tallies:
        if tally.state.ended:
            continue
        layer = (tally.waiting_on or "conductor").partition(":")[0]
        on = "host" if layer == ON_HOST.rstrip(":") else layer
        rows.setdefault((tally.kind, on), []).extend([tally.count, tally.oldest_at])
    found = [
        {
            "kind": kind,
            "waits_for": on,
            "count": sum(pairs[::2]),
            "oldest_s": now - min(pairs[1::2]),
        }
        for (kind, on), pairs in rows.items()
    ]
    return sorted(found, key=lambda row: -row["oldest_s"])


def running_text(rows: Sequence[JsonDict]) -> str:
    """Return what `oldest_of` found in one sentence."""
    if not rows:
        return "no operation runs"
    count, oldest = sum(row["count"] for row in rows), rows[0]
    age = seconds_text(max(0.0, oldest["oldest_s"]))
    verb = "operation runs" if count == 1 else "operations run"
    return f"{count} {verb}, the oldest {oldest['kind']} for {age}, at {oldest['waits_for']}"


def _at_most(rows: Sequence[Finding], what: str) -> Iterator[Finding]:
    yield from rows[:MOST_ROWS]
    if len(rows) > MOST_ROWS:
        worst: State = "degraded" if any(row.state != "ok" for row in rows[MOST_ROWS:]) else "ok"
        yield Finding("more", worst, True, f"{len(rows) - MOST_ROWS} {what}")


def of_processes(uow: UnitOfWork, settings: Settings) -> list[Finding]:
    """Count processes with a recent heartbeat; an embedded system has no scheduler of its own."""
    within_s = max(ALIVE_WITHIN_S, _STALE_FACTOR * settings.heartbeat_s)
    kinds = ("conductor",) if settings.embedded else ("conductor", "scheduler")
    findings = []
    for kind in kinds:
        ages = [uow.now - beat.seen_at for beat in uow.heartbeats.where(kind=kind)]
        fresh = [age for age in ages if age <= within_s]
        newest = f", newest seen {seconds_text(max(0.0, min(ages)))} ago" if ages else ""
        state: State = "ok" if fresh else "away"
        findings.append(Finding(f"{kind}s", state, True, f"{len(fresh)} alive{newest}"))
    return findings


def of_workers(uow: UnitOfWork) -> Iterable[Finding]:
    """Name hosts with unexpected guests, workers that were refused, and notes of workers."""
    troubled = uow.registrations.where(troubled=True)
    strange = [registration for registration in troubled if registration.unexpected_count]
    if strange:
        count = sum(registration.unexpected_count for registration in strange)
        yield Finding("guests", "away", False, f"{count} unexpected ones {_on(strange)}")
    for name, words in (
        (
            "workers",
            [
                (registration.host, registration.refused.get("reason"))
                for registration in troubled
                if registration.refused
            ],
        ),
        (
            "notes",
            [
                (registration.host, n.get("message"))
                for registration in troubled
                for n in registration.notes
            ],
        ),
    ):
        if words:
            detail = "; ".join(f"{host}: {text}" for host, text in words[:_NAMED_MOST])
            more = f"; {len(words) - _NAMED_MOST} more" if len(words) > _NAMED_MOST else ""
            yield Finding(name, "away", False, detail + more)


def _on(hosts: Sequence[Registration]) -> str:
    named = [f"{host.host} ({host.unexpected_count})" for host in hosts[:_NAMED_MOST]]
    more = f" and {len(hosts) - _NAMED_MOST} more hosts" if len(hosts) > _NAMED_MOST else ""
    return f"left alone on {', '.join(named)}{more}: see `instances orphans list`"
