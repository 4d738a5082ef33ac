"""What the processes of conductor and scheduler stand on: store, broker, events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from celery import Celery

from conductor.processes.database_access import drop_heartbeat
from conductor.settings import Settings
from conductor.store import Store
from conductor.store.open_store import open_store
from models.errors import Rejected
from models.messages.carrier import Carrier
from models.tables.schema_upgrade import check_ready
from tasks.app import make_app
from tasks.consuming.task_worker import check_broker, node_name
from tasks.flower.event_stream import EventStream
from tasks.flower.worker_names import worker_name
from tasks.sending.celery_carrier import CeleryCarrier

CLOCK_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What both processes stand on; `name` is this start's own, in heartbeats."""

    name: str
    store: Store
    app: Celery
    carrier: Carrier
    events: EventStream


@contextmanager
def process_parts(settings: Settings, role: str) -> Iterator[ProcessParts]:
    """Open what a role stands on; at an orderly end its heartbeat goes with it."""
    if not settings.database_url:
        message = f"CONDUCTOR_DATABASE_URL is not set: `serve {role}` needs a database"
        raise Rejected("setting_missing", message, key="CONDUCTOR_DATABASE_URL")
    if settings.database_url == "memory://":
        message = "CONDUCTOR_DATABASE_URL is memory://: processes share nothing through it"
        raise Rejected("setting_invalid", message, key="CONDUCTOR_DATABASE_URL")
    check_ready(settings.store_url)
    app = make_app(settings.broker_url)
    check_broker(app)
    store = open_store(settings.store_url)
    name = node_name(role)
    events = EventStream(app, worker_name(role))
    carrier = CeleryCarrier(app, events)
    try:
        yield ProcessParts(name, store, app, carrier, events)
        drop_heartbeat(store, name)
    finally:
        events.close()
        carrier.close()
        store.close()
