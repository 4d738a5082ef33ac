"""The process of a scheduler: selects and claims hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from conductor import clock_agreement
from conductor.processes.control.process_parts import CLOCK_EVERY_S, process_parts
from conductor.processes.metrics_exporter import TimedScheduler, conflict_counter, served
from conductor.processes.periodic import Job, periodic_jobs
from conductor.processes.placement_server import FOLLOW_EVERY_S, mirror_of
from conductor.processes.scheduling_options import scheduling_settings
from conductor.scheduling.scheduling_service import Scheduler
from conductor.settings import Settings
from conductor.store import Heartbeat, UnitOfWork
from conductor.transactions import Transactions
from conductor.upkeep import PeriodicWork
from tasks.scheduler_tasks import serve_scheduler

FORGET_EVERY_S: Final = 0.2
"""Well below the second after which a message's row is swept and sent again."""


def run_scheduler(settings: Settings) -> int:
    """Choose and claim hosts until told to stop; return the exit code."""
    with process_parts(settings, "scheduler") as parts:
        transactions = Transactions(parts.store, parts.carrier)
        registry = CollectorRegistry()
        mirror = mirror_of(settings, parts.store)
        options = scheduling_settings(settings)
        scheduler = TimedScheduler(
            Scheduler(parts.store, options, conflict_counter(registry), mirror), registry
        )
        beat = _beat(transactions, parts.name, "scheduler")
        periodic_work = PeriodicWork(parts.store, parts.name)
        jobs: tuple[Job, ...] = (
            Job("beat", beat, settings.heartbeat_s),
            Job("forget", transactions.outbox.delete_sent, FORGET_EVERY_S),
            Job("clock", partial(clock_agreement.watch, parts.store, periodic_work), CLOCK_EVERY_S),
        )
        if mirror is not None:
            jobs = (*jobs, Job("placement", mirror.follow, FOLLOW_EVERY_S))
        with served(settings, registry), periodic_jobs(*jobs):
            code = serve_scheduler(
                settings.broker_url,
                scheduler,
                transactions.outbox.publish,
                parts.carrier.send,
                parts.events,
            )
        transactions.outbox.delete_sent()
    return code


def _beat(transactions: Transactions, name: str, kind: str) -> Callable[[], None]:
    def put(uow: UnitOfWork) -> None:
        uow.heartbeats.put(Heartbeat(name, kind, uow.now))

    return lambda: transactions.run(put)
