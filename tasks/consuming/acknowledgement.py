"""How a task body ends: done, given back to the queue, or refused for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog
from celery.exceptions import Ignore, Reject

from models.errors import Broken, Rejected
from tasks.consuming.store_retry import GivenBackError, StoreRetry

T = TypeVar("T")

_log = structlog.get_logger(__name__)


def settle(store_retry: StoreRetry, call: Callable[[], T], refuse: Callable[[str], None]) -> T:
    """Return what `call` returns; its message is then acknowledged.

    While the store is away the message is held; when the process stops meanwhile it is given back.
    What is `Rejected` is reported by `refuse` with its reason, and so is every error that nobody
    expected.
    """
    try:
        return store_retry.keep_trying(call)
    except GivenBackError as error:
        raise Reject(str(error), requeue=True) from error
    except Rejected as error:
        _log.warning("message refused", code=error.code, reason=error.message)
        _report_refusal(store_retry, refuse, f"{error.code}: {error.message}")
        raise Ignore from error
    except Broken:
        raise
    except Exception as error:
        _log.exception("a handler failed")
        _report_refusal(store_retry, refuse, f"its handler failed: {type(error).__name__}")
        raise Ignore from error


def _report_refusal(store_retry: StoreRetry, refuse: Callable[[str], None], reason: str) -> None:
    try:
        store_retry.keep_trying(lambda: refuse(reason))
    except GivenBackError as error:
        raise Reject(str(error), requeue=True) from error
