"""The calls between Celery and the first function of the conductor, by a real call stack.

Run as `python -m tests.house.way_in`; `test_way_in.py` holds the limit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any, cast

from celery import Celery
from celery.exceptions import Ignore

from models.messages.internal import HEARTBEAT
from models.messages.requests import REQUESTS
from tasks.app import make_app
from tasks.conductor_port import Conductor
from tasks.conductor_tasks import register
from tasks.consuming.store_retry import StoreRetry
from tests.environment.variables import CHECKOUT

OWN_ACCOUNT = "conductor"
"""The broker account of the conductor itself, which may report of any host."""


class CallNoter:
    """In the conductor's place: notes by which calls of ours it is reached."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def handle_request(self, *_: object) -> None:
        """Note the calls that lead here."""
        self._note(sys._getframe())  # the one way to the calls themselves

    def handle_heartbeat(self, _: Mapping[str, Any]) -> None:
        """Note the calls that lead here."""
        self._note(sys._getframe())  # as above

    def __getattr__(self, name: str) -> object:
        """Any other handler is there to be registered, and does nothing."""
        return lambda *_: None

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith(f"{CHECKOUT}/"):
                self.calls.insert(0, frame.f_code.co_qualname)
            if frame.f_code.co_filename.endswith("tasks/app.py"):
                return
            frame = frame.f_back


@cache
def _tasks() -> tuple[CallNoter, Celery]:
    noter, app = CallNoter(), make_app(f"amqp://{OWN_ACCOUNT}@localhost//")
    register(app, cast(Conductor, noter), StoreRetry())
    return noter, app


def way_in(name: str) -> Sequence[str]:
    """Return the functions of ours, from the task's call to the conductor's handler, both in it."""
    noter, app = _tasks()
    noter.calls = []
    task = app.tasks[name]
    task.push_request(id="one", task=name, properties={"user_id": OWN_ACCOUNT}, kwargs={})
    try:
        with suppress(Ignore):
            task()
    finally:
        task.pop_request()
    return noter.calls


def main() -> None:
    """Print the calls of a request and of a report."""
    for name in (next(iter(REQUESTS)), HEARTBEAT):
        calls = way_in(name)
        print(f"{len(calls):2}  {name}: {' > '.join(calls)}")


if __name__ == "__main__":
    main()
