"""The numbers for Prometheus, printed once."""

from __future__ import annotations

import sys
from functools import partial

import typer
from prometheus_client import CollectorRegistry, generate_latest

from conductor.processes.database_access import open_database
from conductor.processes.metrics_exporter import SystemMetrics
from tasks.app import make_app
from tasks.queue_depths import queue_depths


def add_to(app: typer.Typer) -> None:
    """Add `metrics`."""
    app.command("metrics")(metrics)


def metrics() -> None:
    """Print how the system stands, as Prometheus reads it: operations, outbox, queues.

    What only processes count (decisions, conflicts, ends) they tell themselves, on
    CONDUCTOR_METRICS_PORT.
    """
    with open_database() as here:
        url = here.settings.broker_url
        depths = partial(queue_depths, make_app(url)) if url else None
        registry = CollectorRegistry()
        registry.register(SystemMetrics(here.store, depths))
        sys.stdout.write(generate_latest(registry).decode())
