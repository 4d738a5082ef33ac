"""The process of the conductor: accepts requests, moves operations, does periodic work."""

from __future__ import annotations

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from conductor import clock_agreement
from conductor.processes.control.process_parts import CLOCK_EVERY_S, process_parts
from conductor.processes.control.status_display import show_status
from conductor.processes.metrics_exporter import Ends, SystemMetrics, refusal_counter, served
from conductor.processes.periodic import Job, periodic_jobs
from conductor.processes.service_construction import (
    CONFIRM_EVERY_S,
    RETIRE_EVERY_S,
    build_service,
)
from conductor.settings import Settings
from conductor.upkeep import REFUSED_REPORTS, PeriodicWork
from tasks.broker_accounts import account_in
from tasks.conductor_tasks import serve_conductor
from tasks.flower.operation_results import ResultShower
from tasks.queue_depths import queue_depths
from tasks.report_limits import ReportLimits

SHOW_ENDS_EVERY_S: Final = 5.0
REFUSALS_EVERY_S: Final = 5.0


def run_conductor(settings: Settings) -> int:
    """Accept requests and move operations until told to stop; return the exit code."""
    with process_parts(settings, "conductor") as parts:
        shower = ResultShower(settings.result_url, parts.events) if settings.result_url else None
        registry = CollectorRegistry()
        registry.register(SystemMetrics(parts.store, partial(queue_depths, parts.app)))
        publish = partial(show_status, parts.events, shower, Ends(registry))
        service = build_service(settings, parts.store, parts.carrier, parts.name, publish)
        limits = ReportLimits(account_in(settings.broker_url), refusal_counter(registry))
        clock = clock_agreement.OwnClock()
        watch = partial(clock_agreement.watch, parts.store, service.periodic_work, clock=clock)
        jobs: tuple[Job, ...] = (
            Job(
                "reports", partial(_note_refusals, limits, service.periodic_work), REFUSALS_EVERY_S
            ),
            Job("tick", service.tick, settings.tick_s),
            Job("retire", service.retire, RETIRE_EVERY_S),
            Job("confirm", service.confirm_old_moves, CONFIRM_EVERY_S),
            Job("clock", watch, CLOCK_EVERY_S),
        )
        if shower is not None:
            look = partial(service.publish_ends, shower.unshown)
            jobs = (*jobs, Job("show ends", look, SHOW_ENDS_EVERY_S))
        with served(settings, registry), periodic_jobs(*jobs):
            code = serve_conductor(
                settings.broker_url,
                service,
                parts.events,
                settings.conductor_threads,
                limits,
                clock.utc,
            )
        service.transactions.outbox.delete_sent()
        if shower is not None:
            shower.close()
    return code


def _note_refusals(limits: ReportLimits, work: PeriodicWork) -> None:
    """Let `health` name the accounts whose reports are not taken."""
    summary = limits.summary()
    if summary is None:
        work.clear(REFUSED_REPORTS)
    else:
        work.note(REFUSED_REPORTS, f"not taken: {summary}")
