"""How a process consumes: a Celery worker in the foreground, on a pool of threads."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from amqp.exceptions import AMQPError
from celery import Celery
from celery.app.trace import setup_worker_optimizations
from celery.concurrency.thread import TaskPool
from celery.worker import WorkController, state
from kombu import Connection
from kombu.exceptions import KombuError

from models.errors import Rejected, Unreachable
from models.ids import compute_queue
from tasks.app import check_late_acknowledgement
from tasks.consuming.hardened_consumer import (
    EX_SOFTWARE,
    REFUSED,
    Consuming,
    DeadLetterStep,
    HardenedConsumer,
)
from tasks.consuming.store_retry import StoreRetry
from tasks.routing import DIFFERS, declare_topology

_EX_OK = 0
_log = structlog.get_logger(__name__)
# Two lines a message would say what the one line of its handler says better.
# Of a refused message Celery would log where its handler was, as if that were the fault.
# Of a connection that is lost again and again, our consumer logs one line a minute.
_CHATTY = {
    "celery.worker.strategy": logging.WARNING,
    "celery.app.trace": logging.ERROR,
    "celery.worker.consumer.consumer": logging.ERROR,
}


def check_broker(app: Celery, hosts: Sequence[str] = ()) -> None:
    """Raise `Rejected` for what of a broker only an operator can mend, before anything is begun.

    `broker_refuses`: its account, password or vhost; `topology_differs`: one of our queues is
    there with other arguments. A broker that is not there is waited for when consuming begins.
    """
    connection = app.connection_for_write()
    try:
        with connection:
            connection.connect()
            declare_topology(connection, hosts)
            _name_who_reads(connection, hosts)
    except REFUSED as error:
        message = f"CONDUCTOR_BROKER_URL is {connection.as_uri()}: the broker refuses it: {error}"
        raise Rejected("broker_refuses", message, key="CONDUCTOR_BROKER_URL") from error
    except Rejected as error:
        if error.code == DIFFERS:
            raise
    except (Unreachable, AMQPError, KombuError, OSError) as error:
        _log.info("the broker is waited for", reason=str(error))


def _name_who_reads(connection: Connection, hosts: Sequence[str]) -> None:
    """Say that another worker reads the queue of a host: this one hears nothing until it ends.

    No reason to end: it may be a worker that was killed, and whose connection is not yet closed.
    """
    for host in hosts:
        channel: Any = connection.channel()  # the stubs do not know what AMQP's can do
        with channel:
            found = channel.queue_declare(compute_queue(host), passive=True)
        if found.consumer_count:
            reason = (
                f"another worker reads {found.queue}: one worker serves one host, so this one "
                f"stands by and is told nothing, not even that it is refused, until that one ends"
            )
            _log.warning("this worker stands by", host=host, reason=reason)


def node_name(role: str) -> str:
    """Return the name of this start of a process; no other process ever has it."""
    return f"{role}-{os.getpid()}@{socket.gethostname()}"


def serve(app: Celery, role: str, consuming: Consuming, threads: int = 4) -> int:
    """Consume the queues of `app` until SIGTERM or SIGINT, finish what runs, return the exit code.

    Prints `ready` once messages come. Waits for a broker that is not there, and reconnects to one
    that goes away. A second signal ends the process at once. Call it once a process, in the main
    thread.
    """
    check_late_acknowledgement(app)
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(level)
    app.steps["consumer"].add(DeadLetterStep)
    setup_worker_optimizations(app, node_name(role))
    controller = WorkController(
        app=app,
        hostname=node_name(role),
        pool_cls=_watched_pool(consuming.store_retry),
        consumer_cls=functools.partial(HardenedConsumer, consuming=consuming),
        concurrency=threads,
        disable_rate_limits=True,
        ready_callback=_say_ready,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopper(consuming.store_retry))
    controller.start()
    return controller.exitcode or _EX_OK


def stop_serving(store_retry: StoreRetry, code: int = _EX_OK) -> None:
    """Let `serve` finish what runs and return `code`; from any thread, and again, harmless."""
    store_retry.stop()
    flags: Any = state  # the stubs do not know that Celery's stop flag takes an exit code
    flags.should_stop = code


def _watched_pool(store_retry: StoreRetry) -> type[TaskPool]:
    """Return Celery's threads, watched: an error between message and task leaves it unanswered.

    Enough of those would use up the prefetch and leave a worker that takes nothing, so the
    process ends instead, and what it had in hand returns to the queue.
    """

    def watch(future: Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            _log.critical("the worker itself failed", exc_info=error)
            stop_serving(store_retry, EX_SOFTWARE)

    class WatchedPool(TaskPool):
        def on_apply(self, *args: Any, **kwargs: Any) -> Any:
            result = super().on_apply(*args, **kwargs)
            result.f.add_done_callback(watch)
            return result

    return WatchedPool


def _say_ready(_consumer: Any) -> None:
    # One write, since handlers may already be running: a line of theirs must not end up inside.
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _stopper(store_retry: StoreRetry) -> Callable[[int, Any], None]:
    def stop(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop_serving(store_retry)

    return stop
