"""How many empty Celery tasks a second this broker and machine carry: the yardstick of services.

The worker is Celery's own, with nothing of ours but the configuration (late acknowledgement,
confirms, events, pool, prefetch), fed by plain `apply_async` while it consumes.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

from celery import Celery
from celery.worker import WorkController
from kombu import Queue

from tasks.app import make_app
from tasks.routing import work_queue

QUEUE = "conductor"
TASK = "benchmark.empty"
WARM_UP = 200


def empty_task_rate(
    broker_url: str, threads: int = 4, prefetch: int = 32, tasks: int = 4_000, senders: int = 2
) -> float:
    """Return tasks a second from the first publish of `tasks` to the end of the last.

    The vhost must have the topology declared and nobody else on the queue `conductor`.
    """
    command = [sys.executable, "-m", __name__, broker_url, str(threads), str(prefetch), str(tasks)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        _expect(worker.stdout.readline(), "ready")
        app = _app(broker_url)
        _send(app, WARM_UP)
        _expect(worker.stdout.readline(), "warm")
        began = time.monotonic()
        crew = [
            threading.Thread(target=_send, args=(app, tasks // senders)) for _ in range(senders)
        ]
        for sender in crew:
            sender.start()
        _expect(worker.stdout.readline(), "done")
        ended = time.monotonic()
        for sender in crew:
            sender.join()
        return tasks / (ended - began)
    finally:
        worker.kill()
        worker.wait()


def _app(broker_url: str) -> Celery:
    queue: Queue = work_queue(QUEUE)
    return make_app(broker_url, (queue,), name="benchmark")


def _send(app: Celery, count: int) -> None:
    signature = app.signature(TASK)
    for _ in range(count):
        signature.apply_async()


def _expect(line: str, word: str) -> None:
    if line.strip() != word:
        raise RuntimeError(f"the benchmark's worker said {line!r} instead of {word}")


def _work(broker_url: str, threads: int, prefetch: int, tasks: int) -> None:
    """Run the worker: it says when it is ready, warm and done, and ends with its parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    app = _app(broker_url)
    counter = itertools.count(1)

    def empty() -> None:
        done = next(counter)
        if done == WARM_UP:
            print("warm", flush=True)
        elif done == WARM_UP + tasks:
            print("done", flush=True)

    # The worker itself publishes nothing but events. With confirms on their connection, which is
    # also the one it consumes from, Celery's own worker livelocks now and then.
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "confirm_publish": False,
    }
    app.task(name=TASK)(empty)
    app.set_default()
    controller = WorkController(
        app=app,
        pool_cls="threads",
        concurrency=threads,
        prefetch_multiplier=max(1, prefetch // threads),
        ready_callback=lambda _consumer: print("ready", flush=True),
    )
    controller.start()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        _work(sys.argv[1], *(int(number) for number in sys.argv[2:5]))
