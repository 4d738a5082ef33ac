"""Whether everything that is needed is there: one line each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import typer

from conductor import clock_agreement
from conductor.cli.health_findings import (
    Finding,
    of_hosts,
    of_periodic_work,
    of_processes,
    of_queues,
    of_waiting,
    of_workers,
    oldest_of,
    running_text,
)
from conductor.cli.rendering.json_views import HostStatus, host_view
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.service_probes import answered_in, probe_broker, probe_redis, tried
from conductor.cli.store_queries import host_statuses_of
from conductor.exit_codes import AWAY, NO
from conductor.processes.database_access import open_database
from conductor.processes.placement_server import check_credentials
from conductor.settings import Settings, read_settings
from conductor.upkeep import troubles
from models.errors import ConductorError
from tasks.app import make_app
from tasks.queue_depths import queue_depths


def add_to(app: typer.Typer) -> None:
    """Add `health`."""
    app.command("health")(health)


def health(output: Output = None) -> None:
    """Check services, processes, queues, hosts and what waits for too long.

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
        yield tried("broker", True, lambda: probe_broker(settings.broker_url))
    if url := settings.placement_url.get_secret_value():
        yield tried("placement", True, lambda: check_credentials(url))
    if settings.result_url:
        yield tried("results", False, lambda: probe_redis(settings.result_url))


def _processes() -> Iterable[Finding]:
    started = time.monotonic()
    try:
        with open_database() as here, here.store.read() as uow:
            off_s = 0.0 if here.settings.embedded else clock_agreement.off_by(here.store)
            living = of_processes(uow, here.settings)
            living += of_periodic_work(troubles(uow))
            statuses = host_statuses_of(uow, uow.hosts.where(), here.settings.down_after_s)
            waiting = [*of_workers(uow), *of_waiting(uow)]
            oldest = oldest_of(uow.operations.census(), uow.now)
            settings = here.settings
    except ConductorError as error:
        yield Finding("database", "away", True, error.message)
        return
    detail = f"{answered_in(started)}; {running_text(oldest)}"
    yield Finding("database", "ok", True, detail, {"operations": oldest})
    if off_s:
        yield Finding("clock", "away", False, clock_agreement.explanation(off_s))
    yield from living
    yield of_hosts(statuses)
    yield from waiting
    if not settings.embedded:
        yield from _queues(settings, statuses)


def _queues(settings: Settings, statuses: Sequence[HostStatus]) -> Iterable[Finding]:
    """Look at the queues, where there is a broker; one that is away has a finding of its own."""
    names = [status.host.name for status in statuses if host_view(status)["state"] != "down"]
    try:
        found = queue_depths(make_app(settings.broker_url), names)
    except ConductorError:
        return
    yield from of_queues(found, names)
