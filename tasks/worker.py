"""How a process consumes: a Celery worker in the foreground, on a pool of threads."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app.trace import setup_worker_optimizations
from celery.worker import WorkController, state

from tasks.app import check_late_acknowledgement
from tasks.consumer import Consuming, DeadLetterStep, HardenedConsumer
from tasks.patience import Patience

_EX_OK = 0
# Two lines a message would say what the one line of its handler says better.
_CHATTY = ("celery.worker.strategy", "celery.app.trace")


def node_name(role: str) -> str:
    """Return the name of this process in Flower; no other process has it."""
    return f"{role}-{os.getpid()}@{socket.gethostname()}"


def serve(app: Celery, role: str, consuming: Consuming, threads: int = 4) -> int:
    """Consume the queues of `app` until SIGTERM or SIGINT, finish what runs, return the exit code.

    Prints `ready` once messages come. Waits for a broker that is not there, and reconnects to one
    that goes away. A second signal ends the process at once. Call it once a process, in the main
    thread.
    """
    check_late_acknowledgement(app)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    app.steps["consumer"].add(DeadLetterStep)
    setup_worker_optimizations(app, node_name(role))
    controller = WorkController(
        app=app,
        hostname=node_name(role),
        pool_cls="threads",
        consumer_cls=functools.partial(HardenedConsumer, consuming=consuming),
        concurrency=threads,
        disable_rate_limits=True,
        ready_callback=_say_ready,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopper(consuming.patience))
    controller.start()
    return controller.exitcode or _EX_OK


def stop_serving(patience: Patience, code: int = _EX_OK) -> None:
    """Let `serve` finish what runs and return `code`; from any thread, and again, harmless."""
    patience.stop()
    flags: Any = state  # the stubs do not know that Celery's stop flag takes an exit code
    flags.should_stop = code


def _say_ready(_consumer: Any) -> None:
    # One write, since handlers may already be running: a line of theirs must not end up inside.
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _stopper(patience: Patience) -> Callable[[int, Any], None]:
    def stop(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop_serving(patience)

    return stop
