"""How a task body ends: done, given back to the queue, or refused for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog
from celery.exceptions import Reject

from models.errors import Rejected
from tasks.consuming.store_retry import GivenBackError, StoreRetry

T = TypeVar("T")

_log = structlog.get_logger(__name__)


def settle(store_retry: StoreRetry, call: Callable[[], T]) -> T:
    """Return what `call` returns; its message is then acknowledged.

    While the store is away the message is held; when the process stops meanwhile it is given back.
    What is `Rejected`, and every error that nobody expected, goes to the dead letters.
    """
    try:
        return store_retry.keep_trying(call)
    except GivenBackError as error:
        raise Reject(str(error), requeue=True) from error
    except Rejected as error:
        _log.warning("message refused", code=error.code, reason=error.message)
        raise Reject(f"{error.code}: {error.message}", requeue=False) from error
