"""Whether everything that is needed is there: one line each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import typer
from amqp.exceptions import AMQPError
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

from conductor import clock_agreement
from conductor.cli.health_findings import (
    Finding,
    State,
    of_hosts,
    of_periodic_work,
    of_queues,
    of_waiting,
    oldest_of,
    running_text,
)
from conductor.cli.rendering.json_views import HostStatus, host_view
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.store_queries import operation_statuses_of
from conductor.exit_codes import AWAY, NO
from conductor.processes.database_access import ALIVE_WITHIN_S, DatabaseAccess, open_database
from conductor.processes.placement_server import check_credentials
from conductor.settings import Settings, read_settings
from conductor.store import Registration, UnitOfWork
from conductor.upkeep import troubles
from models.errors import ConductorError, Unreachable
from models.units import seconds_text
from tasks.app import make_app
from tasks.queue_depths import queue_depths

_TIMEOUT_S: Final = 3
_STALE_FACTOR: Final = 3.0
_NAMED_MOST: Final = 3


def add_to(app: typer.Typer) -> None:
    """Add `health`."""
    app.command("health")(health)


def health(output: Output = None) -> None:
    """Say whether all is there and gets on: services, processes, queues, hosts, what waits.

    Exits 4 where something that is needed is away, 3 where something is degraded.
    """
    settings = read_settings()
    findings = [*_services(settings), *_processes()]
    rows = [finding.to_json() for finding in findings]
    columns = [(name, key(name)) for name in ("name", "state", "detail")]
    show_all(rows, output, lambda: table_of(rows, columns))
    if any(finding.needed and finding.state == "away" for finding in findings):
        raise typer.Exit(AWAY)
    if any(finding.state == "degraded" for finding in findings):
        raise typer.Exit(NO)


def _services(settings: Settings) -> Iterable[Finding]:
    if settings.embedded:
        yield Finding("broker", "ok", False, "embedded: none is needed")
    else:
        yield _tried("broker", True, lambda: _ask_broker(settings.broker_url))
    if url := settings.placement_url.get_secret_value():
        yield _tried("placement", True, lambda: check_credentials(url))
    if settings.result_url:
        yield _tried("results", False, lambda: _ask_redis(settings.result_url))


def _processes() -> Iterable[Finding]:
    started = time.monotonic()
    try:
        with open_database() as here, here.store.read() as uow:
            off_s = 0.0 if here.settings.embedded else clock_agreement.off_by(here.store)
            living = _living(here, uow)
            living += of_periodic_work(troubles(uow))
            sights = operation_statuses_of(uow, uow.hosts.where(), here.settings.down_after_s)
            waiting = [*_troubles(uow), *of_waiting(uow)]
            oldest = oldest_of(uow.operations.census(), uow.now)
            settings = here.settings
    except ConductorError as error:
        yield Finding("database", "away", True, error.message)
        return
    detail = f"{_answered(started)}; {running_text(oldest)}"
    yield Finding("database", "ok", True, detail, {"operations": oldest})
    if off_s:
        yield Finding("clock", "away", False, clock_agreement.explanation(off_s))
    yield from living
    yield of_hosts(sights)
    yield from waiting
    if not settings.embedded:
        yield from _queues(settings, sights)


def _queues(settings: Settings, sights: Sequence[HostStatus]) -> Iterable[Finding]:
    """Look at the queues, where there is a broker to ask; that it is away is said already."""
    names = [status.host.name for status in sights if host_view(status)["state"] != "down"]
    try:
        found = queue_depths(make_app(settings.broker_url), names)
    except ConductorError:
        return
    yield from of_queues(found, names)


def _living(here: DatabaseAccess, uow: UnitOfWork) -> list[Finding]:
    """Count processes heard of lately; an embedded system has no scheduler of its own."""
    within_s = max(ALIVE_WITHIN_S, _STALE_FACTOR * here.settings.heartbeat_s)
    kinds = ("conductor",) if here.settings.embedded else ("conductor", "scheduler")
    findings = []
    for kind in kinds:
        ages = [uow.now - beat.seen_at for beat in uow.heartbeats.where(kind=kind)]
        fresh = [age for age in ages if age <= within_s]
        newest = f", newest seen {seconds_text(max(0.0, min(ages)))} ago" if ages else ""
        state: State = "ok" if fresh else "away"
        findings.append(Finding(f"{kind}s", state, True, f"{len(fresh)} alive{newest}"))
    return findings


def _troubles(uow: UnitOfWork) -> Iterable[Finding]:
    """Name the guests that are left alone, and workers that were refused or have complained."""
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
            told = "; ".join(f"{host}: {text}" for host, text in words[:_NAMED_MOST])
            more = f"; {len(words) - _NAMED_MOST} more" if len(words) > _NAMED_MOST else ""
            yield Finding(name, "away", False, told + more)


def _on(hosts: Sequence[Registration]) -> str:
    named = [f"{host.host} ({host.unexpected_count})" for host in hosts[:_NAMED_MOST]]
    more = f" and {len(hosts) - _NAMED_MOST} more hosts" if len(hosts) > _NAMED_MOST else ""
    return f"left alone on {', '.join(named)}{more}: see `hosts show`"


def _tried(name: str, needed: bool, ask: Callable[[], None]) -> Finding:
    started = time.monotonic()
    try:
        ask()
    except ConductorError as error:
        return Finding(name, "away", needed, error.message)
    return Finding(name, "ok", needed, _answered(started))


def _answered(started: float) -> str:
    return f"answered in {seconds_text(time.monotonic() - started)}"


def _ask_broker(url: str) -> None:
    app = make_app(url)
    with app.connection_for_read(heartbeat=0) as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=_TIMEOUT_S)
        except (OSError, AMQPError, KombuError) as error:
            where = connection.as_uri()
            raise Unreachable("broker_unreachable", f"{where}: {error}") from error


def _ask_redis(url: str) -> None:
    client: Any = Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
    try:
        client.ping()
    except RedisError as error:
        raise Unreachable("results_unreachable", str(error)) from error
    finally:
        client.close()
