"""The processes of conductor and scheduler, put together: store, carrier, service, clockwork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from conductor.cli.clockwork import Job, clockwork
from conductor.cli.embedded import RETIRE_EVERY_S, build_service, scheduling_settings
from conductor.outbox import Outbox
from conductor.scheduling.service import Scheduler
from conductor.settings import Settings
from conductor.store import open_store
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import Heartbeat
from models.errors import Conflict, Rejected, Unreachable
from models.messages.carrier import Carrier
from tasks.app import make_app
from tasks.carrier import CeleryCarrier
from tasks.conductor import serve_conductor
from tasks.events import EventStream
from tasks.scheduler import serve_scheduler
from tasks.worker import node_name

FORGET_EVERY_S: Final = 0.5
"""Well below the second after which a letter's row is swept and sent again."""


@dataclass(frozen=True, slots=True)
class Means:
    """What both roles stand on; `name` is the process's own, in heartbeats and in Flower."""

    name: str
    store: Store
    carrier: Carrier


def run_conductor(settings: Settings) -> int:
    """Accept requests and move operations until told to stop; return the exit code."""
    with _means(settings, "conductor") as means:
        service = build_service(settings, means.store, means.carrier, means.name)
        jobs = (
            Job("tick", service.tick, settings.tick_s),
            Job("retire", service.retire, RETIRE_EVERY_S),
        )
        with clockwork(*jobs):
            code = serve_conductor(settings.broker_url, service, settings.conductor_threads)
        service.outbox.forget()
    return code


def run_scheduler(settings: Settings) -> int:
    """Choose and claim hosts until told to stop; return the exit code."""
    with _means(settings, "scheduler") as means:
        outbox = Outbox(means.store, means.carrier)
        scheduler = Scheduler(means.store, scheduling_settings(settings))
        beat = _beat(outbox, means.name, "scheduler")
        jobs = (
            Job("beat", beat, settings.heartbeat_s),
            Job("forget", outbox.forget, FORGET_EVERY_S),
        )
        with clockwork(*jobs):
            code = serve_scheduler(settings.broker_url, scheduler, outbox.publish)
        outbox.forget()
    return code


@contextmanager
def _means(settings: Settings, role: str) -> Iterator[Means]:
    """Open what a role stands on; at an orderly end its heartbeat goes with it."""
    if not settings.database_url:
        message = f"CONDUCTOR_DATABASE_URL is not set: `serve {role}` needs a database"
        raise Rejected("setting_missing", message, key="CONDUCTOR_DATABASE_URL")
    store = open_store(settings.store_url)
    app = make_app(settings.broker_url)
    name = node_name(role)
    events = EventStream(app, name)
    carrier = CeleryCarrier(app, events)
    try:
        yield Means(name, store, carrier)
        _say_goodbye(store, name)
    finally:
        events.close()
        carrier.close()
        store.close()


def _beat(outbox: Outbox, name: str, kind: str) -> Callable[[], None]:
    def put(uow: UnitOfWork) -> None:
        uow.heartbeats.put(Heartbeat(name, kind, uow.now))

    return lambda: outbox.run(put)


def _say_goodbye(store: Store, name: str) -> None:
    try:
        with store.begin() as uow:
            uow.heartbeats.drop(name)
    except (Conflict, Unreachable):
        return  # without it the heartbeat merely grows old
