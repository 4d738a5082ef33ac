"""Whether everything that is needed is there: one line each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer
from amqp.exceptions import AMQPError
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

from conductor import clocks
from conductor.cli.failures import AWAY
from conductor.cli.output import Output, show_all
from conductor.cli.partner import greet
from conductor.cli.reach import ALIVE_WITHIN_S, Reach, reach
from conductor.cli.reading import sights_of
from conductor.cli.tables import key, table_of
from conductor.cli.views import host_view
from conductor.rounds import troubles
from conductor.settings import Settings, read_settings
from conductor.store.ports import UnitOfWork
from conductor.store.records import Registration
from models.errors import ConductorError, Unreachable
from models.units import seconds_text
from tasks.app import make_app

_TIMEOUT_S: Final = 3
_STALE_FACTOR: Final = 3.0
_NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; only what is `needed` decides the exit code."""

    name: str
    ok: bool
    needed: bool
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        state = "ok" if self.ok else "away"
        return {"name": self.name, "state": state, "needed": self.needed, "detail": self.detail}


def add_to(app: typer.Typer) -> None:
    """Add `health`."""
    app.command("health")(health)


def health(output: Output = None) -> None:
    """Say whether services, conductors, schedulers and hosts are there."""
    settings = read_settings()
    findings = [*_services(settings), *_processes()]
    rows = [finding.to_json() for finding in findings]
    columns = [(name, key(name)) for name in ("name", "state", "detail")]
    show_all(rows, output, lambda: table_of(rows, columns))
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(AWAY)


def _services(settings: Settings) -> Iterable[Finding]:
    if settings.embedded:
        yield Finding("broker", True, False, "embedded: none is needed")
    else:
        yield _tried("broker", True, lambda: _ask_broker(settings.broker_url))
    if url := settings.placement_url.get_secret_value():
        yield _tried("placement", True, lambda: greet(url))
    if settings.result_url:
        yield _tried("results", False, lambda: _ask_redis(settings.result_url))


def _processes() -> Iterable[Finding]:
    started = time.monotonic()
    try:
        with reach() as here, here.store.read() as uow:
            off_s = 0.0 if here.settings.embedded else clocks.off_by(here.store)
            living = _living(here, uow)
            living += [
                # A clock that is off harms nothing: it is the database's that counts.
                Finding(f"work of {name}", False, not name.endswith(f"/{clocks.CLOCK}"), why)
                for name, why in troubles(uow)
            ]
            hosts = [_hosts(here, uow), *_troubles(uow)]
    except ConductorError as error:
        yield Finding("database", False, True, error.message)
        return
    yield Finding("database", True, True, _answered(started))
    if off_s:
        yield Finding("clock", False, False, clocks.said(off_s))
    yield from living
    yield from hosts


def _living(here: Reach, uow: UnitOfWork) -> list[Finding]:
    """Count processes heard of lately; an embedded system has no scheduler of its own."""
    within_s = max(ALIVE_WITHIN_S, _STALE_FACTOR * here.settings.heartbeat_s)
    kinds = ("conductor",) if here.settings.embedded else ("conductor", "scheduler")
    findings = []
    for kind in kinds:
        ages = [uow.now - beat.seen_at for beat in uow.heartbeats.where(kind=kind)]
        fresh = [age for age in ages if age <= within_s]
        newest = f", newest seen {seconds_text(max(0.0, min(ages)))} ago" if ages else ""
        findings.append(Finding(f"{kind}s", bool(fresh), True, f"{len(fresh)} alive{newest}"))
    return findings


def _hosts(here: Reach, uow: UnitOfWork) -> Finding:
    sights = sights_of(uow, uow.hosts.where(), here.settings.down_after_s)
    states = [host_view(sight)["state"] for sight in sights]
    up = states.count("up")
    others = ", ".join(
        f"{states.count(state)} {state}" for state in sorted(set(states)) if state != "up"
    )
    detail = f"{up} of {len(states)} up" + (f" ({others})" if others else "")
    return Finding("hosts", up > 0, False, detail)


def _troubles(uow: UnitOfWork) -> Iterable[Finding]:
    """Name the guests that are left alone, and workers that were refused or have complained."""
    troubled = uow.registrations.where(troubled=True)
    strange = [each for each in troubled if each.unexpected_count]
    if strange:
        count = sum(each.unexpected_count for each in strange)
        yield Finding("guests", False, False, f"{count} unexpected ones {_on(strange)}")
    for name, words in (
        ("workers", [(each.host, each.refused.get("reason")) for each in troubled if each.refused]),
        ("notes", [(each.host, n.get("message")) for each in troubled for n in each.notes]),
    ):
        if words:
            told = "; ".join(f"{host}: {text}" for host, text in words[:_NAMED_MOST])
            more = f"; {len(words) - _NAMED_MOST} more" if len(words) > _NAMED_MOST else ""
            yield Finding(name, False, False, told + more)


def _on(hosts: Sequence[Registration]) -> str:
    named = [f"{each.host} ({each.unexpected_count})" for each in hosts[:_NAMED_MOST]]
    more = f" and {len(hosts) - _NAMED_MOST} more hosts" if len(hosts) > _NAMED_MOST else ""
    return f"left alone on {', '.join(named)}{more}: see `hosts show`"


def _tried(name: str, needed: bool, ask: Callable[[], None]) -> Finding:
    started = time.monotonic()
    try:
        ask()
    except ConductorError as error:
        return Finding(name, False, needed, error.message)
    return Finding(name, True, needed, _answered(started))


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
