"""What the conductor's process cannot handle is kept as a dead letter that says why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from celery import Task
from celery.exceptions import Reject
from kombu import Message

from conductor.store import DeadLetter
from models.errors import Conflict, Rejected, defect_text
from models.secrets import shown
from tasks.conductor_port import Conductor
from tasks.consuming.store_retry import GivenBackError, StoreRetry
from tasks.dead_letter_reading import (
    dead_letter_of,
    keep_dead_letter,
    read_dead_letter,
    refused_message,
    request_of,
)
from tasks.routing import is_ours

_FAILED = "handler_failed"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Runs handlers; the message of one that fails is kept as a dead letter that says why."""

    conductor: Conductor
    store_retry: StoreRetry

    def run(
        self,
        task: Task[Any, Any],
        queue: str,
        call: Callable[[], object],
        is_kept: Callable[[str], bool] = lambda _code: True,
    ) -> None:
        """Run `call`; of what it raises, `is_kept` says by its code whether a record is kept.

        While the store is away the message is held; when the process stops meanwhile it is given
        back to its queue. Raises `Conflict` when others have moved first too often.
        """
        try:
            self.store_retry.keep_trying(call)
        except GivenBackError as error:
            raise Reject(str(error), requeue=True) from error
        except Conflict:
            raise
        except Rejected as error:
            if is_kept(error.code):
                self._record(task, queue, f"{error.code}: {error.message}")
        except Exception as error:  # noqa: BLE001  # whatever it is, the message must not vanish
            if is_kept(_FAILED):
                _log.exception("a handler failed", task=task.name, id=task.request.id)
                self._record(task, queue, defect_text("its handler failed", error))

    def _record(self, task: Task[Any, Any], queue: str, reason: str) -> None:
        dead_letter = dead_letter_of(task.request, queue, reason, time.time())
        try:
            self.store_retry.keep_trying(partial(self.conductor.handle_dead_letter, dead_letter))
        except GivenBackError as error:
            raise Reject(str(error), requeue=True) from error


def record_dead_letter(conductor: Conductor, message: Message) -> None:
    """Keep a message of the queue `dead_letters`; raise only while the store is away."""
    _keep(conductor, message, read_dead_letter(message, time.time()))


def record(conductor: Conductor, message: Message, queue: str, reason: str) -> None:
    """Keep a message that `queue` held and nobody takes; raise only while the store is away.

    Written here and not left to the broker: RabbitMQ 3.10 stops dead-lettering for a whole node
    over a header `x-death` that it did not make itself.
    """
    _keep(conductor, message, refused_message(message, queue, reason, time.time()))


def _keep(conductor: Conductor, message: Message, dead_letter: DeadLetter) -> None:
    keep_dead_letter(conductor.handle_dead_letter, dead_letter)
    request = request_of(dead_letter, message)
    if request is not None:
        fault = Rejected("message_refused", dead_letter.reason)
        answer_to, _ = answerable(request.reply_to)
        conductor.handle_request(request.task, request.id, request.body, answer_to, fault)


def answerable(reply_to: str | None) -> tuple[str | None, Rejected | None]:
    """Return where to answer, or why nowhere: what we send counts as ours in queues of ours."""
    if not reply_to or not is_ours(reply_to):
        return reply_to or None, None
    message = f"reply_to is {shown(reply_to)}: should be a queue of the sender's own"
    return None, Rejected("reply_to_invalid", message, key="reply_to")
