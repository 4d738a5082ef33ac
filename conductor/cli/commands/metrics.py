"""The numbers for Prometheus, printed once."""

from __future__ import annotations

import sys
from functools import partial

import typer
from prometheus_client import CollectorRegistry, generate_latest

from conductor.cli.metrics import Standing
from conductor.cli.reach import reach
from tasks.app import make_app
from tasks.depths import queue_depths


def add_to(app: typer.Typer) -> None:
    """Add `metrics`."""
    app.command("metrics")(metrics)


def metrics() -> None:
    """Print how the system stands, as Prometheus reads it: operations, outbox, queues.

    What only processes count (decisions, conflicts, ends) they tell themselves, on
    CONDUCTOR_METRICS_PORT.
    """
    with reach() as here:
        url = here.settings.broker_url
        depths = partial(queue_depths, make_app(url)) if url else None
        registry = CollectorRegistry()
        registry.register(Standing(here.store, depths))
        sys.stdout.write(generate_latest(registry).decode())
