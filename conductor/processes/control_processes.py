"""The processes of conductor and scheduler, put together: store, carrier, service, clockwork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from celery import Celery
from prometheus_client import CollectorRegistry

from conductor import clock_agreement
from conductor.operation_status import OperationStatus, arguments_of
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.database_access import drop_heartbeat
from conductor.processes.embedded import (
    CONFIRM_EVERY_S,
    RETIRE_EVERY_S,
    build_service,
    scheduling_settings,
)
from conductor.processes.metrics_exporter import (
    Ends,
    SystemMetrics,
    TimedScheduler,
    conflict_counter,
    refusal_counter,
    served,
)
from conductor.processes.periodic import Job, periodic_jobs
from conductor.processes.placement_server import FOLLOW_EVERY_S, mirror_of
from conductor.scheduling.scheduling_service import Scheduler
from conductor.settings import Settings
from conductor.store import Heartbeat, OperationRecord, Store, UnitOfWork
from conductor.store.open_store import open_store
from conductor.transactions import Transactions
from conductor.upkeep import REFUSED_REPORTS, PeriodicWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import OperationState
from models.messages.carrier import Carrier
from models.messages.internal import shown_arguments
from models.messages.requests import PREFIX
from models.tables.schema_upgrade import check_ready
from tasks.app import make_app
from tasks.broker_accounts import account_in
from tasks.conductor_tasks import serve_conductor
from tasks.consuming.task_worker import check_broker, node_name
from tasks.flower.event_stream import EventStream
from tasks.flower.flower_events import given_up
from tasks.flower.operation_results import ResultShower, Shown, event_of
from tasks.flower.worker_names import worker_name
from tasks.queue_depths import queue_depths
from tasks.report_limits import ReportLimits
from tasks.scheduler_tasks import serve_scheduler
from tasks.sending.celery_carrier import CeleryCarrier

SHOW_ENDS_EVERY_S: Final = 5.0
CLOCK_EVERY_S: Final = 10.0
REFUSALS_EVERY_S: Final = 5.0
FORGET_EVERY_S: Final = 0.2
"""Well below the second after which a message's row is swept and sent again."""


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What both roles stand on; `name` is this start's own, in heartbeats."""

    name: str
    store: Store
    app: Celery
    carrier: Carrier
    events: EventStream


def run_conductor(settings: Settings) -> int:
    """Accept requests and move operations until told to stop; return the exit code."""
    with _process_parts(settings, "conductor") as means:
        shower = ResultShower(settings.result_url, means.events) if settings.result_url else None
        registry = CollectorRegistry()
        registry.register(SystemMetrics(means.store, partial(queue_depths, means.app)))
        publish = partial(_show, means.events, shower, Ends(registry))
        service = build_service(settings, means.store, means.carrier, means.name, publish)
        limits = ReportLimits(account_in(settings.broker_url), refusal_counter(registry))
        jobs: tuple[Job, ...] = (
            Job(
                "reports", partial(_note_refusals, limits, service.periodic_work), REFUSALS_EVERY_S
            ),
            Job("tick", service.tick, settings.tick_s),
            Job("retire", service.retire, RETIRE_EVERY_S),
            Job("confirm", service.confirm_old_moves, CONFIRM_EVERY_S),
            Job(
                "clock",
                partial(clock_agreement.watch, means.store, service.periodic_work),
                CLOCK_EVERY_S,
            ),
        )
        if shower is not None:
            look = partial(service.publish_ends, shower.unshown)
            jobs = (*jobs, Job("show ends", look, SHOW_ENDS_EVERY_S))
        with served(settings, registry), periodic_jobs(*jobs):
            code = serve_conductor(
                settings.broker_url, service, means.events, settings.conductor_threads, limits
            )
        service.transactions.outbox.delete_sent()
        if shower is not None:
            shower.close()
    return code


def run_scheduler(settings: Settings) -> int:
    """Choose and claim hosts until told to stop; return the exit code."""
    with _process_parts(settings, "scheduler") as means:
        transactions = Transactions(means.store, means.carrier)
        registry = CollectorRegistry()
        mirror = mirror_of(settings, means.store)
        wishes = scheduling_settings(settings)
        scheduler = TimedScheduler(
            Scheduler(means.store, wishes, conflict_counter(registry), mirror), registry
        )
        beat = _beat(transactions, means.name, "scheduler")
        periodic_work = PeriodicWork(means.store, means.name)
        jobs: tuple[Job, ...] = (
            Job("beat", beat, settings.heartbeat_s),
            Job("forget", transactions.outbox.delete_sent, FORGET_EVERY_S),
            Job("clock", partial(clock_agreement.watch, means.store, periodic_work), CLOCK_EVERY_S),
        )
        if mirror is not None:
            jobs = (*jobs, Job("placement", mirror.follow, FOLLOW_EVERY_S))
        with served(settings, registry), periodic_jobs(*jobs):
            code = serve_scheduler(
                settings.broker_url,
                scheduler,
                transactions.outbox.publish,
                means.carrier.send,
                means.events,
            )
        transactions.outbox.delete_sent()
    return code


@contextmanager
def _process_parts(settings: Settings, role: str) -> Iterator[ProcessParts]:
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


def _note_refusals(limits: ReportLimits, work: PeriodicWork) -> None:
    """Let `health` name the accounts whose reports are not taken."""
    summary = limits.summary()
    if summary is None:
        work.clear(REFUSED_REPORTS)
    else:
        work.note(REFUSED_REPORTS, f"not taken: {summary}")


def _beat(transactions: Transactions, name: str, kind: str) -> Callable[[], None]:
    def put(uow: UnitOfWork) -> None:
        uow.heartbeats.put(Heartbeat(name, kind, uow.now))

    return lambda: transactions.run(put)


def _show(
    events: EventStream, shower: ResultShower | None, ends: Ends, status: OperationStatus
) -> None:
    """Show an operation in Flower, and to whoever looks at its id in the result backend."""
    record = status.record
    ends.note(status)
    shown = Shown(
        operation_id=record.id,
        task=PREFIX + record.kind,
        state=record.state,
        result=_result_of(record),
        error=record.error,
        shown=shown_arguments(**arguments_of(status)),
        root_id=record.root_id,
        parent_id=record.parent_id,
        began_at=record.created_at,
        ended_at=record.ended_at,
    )
    if status.given_up is not None:
        why = (record.error or {}).get("message") or f"the operation went on: {record.state}"
        events.tell([given_up(status.given_up, why)])
    if shower is not None:
        shower.show(shown)
    else:
        events.tell([event_of(shown)])


def _result_of(record: OperationRecord) -> Json | None:
    definition = OPERATIONS.get(record.kind)
    if record.state is not OperationState.SUCCEEDED or definition is None:
        return None
    return definition.describe(definition.load(record.data))
