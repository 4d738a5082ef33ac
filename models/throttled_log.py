"""Warnings of one kind at most once a minute, each saying how many were kept back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

EVERY_S: Final = 60.0

_log = structlog.get_logger(__name__)


def _warn(event: str, **fields: Any) -> None:
    # Looked up now: a method taken at import keeps the output that was set then.
    _log.warning(event, **fields)


class ThrottledLog:
    """Logs the first warning of a kind, then one a minute with the count of those in between."""

    def __init__(
        self,
        warn: Callable[..., None] = _warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: dict[str, float] = {}
        self._kept_back: dict[str, int] = {}

    def warn(self, kind: str, **fields: Any) -> None:
        """Warn of `kind` (a short sentence), or count it where one was given this minute."""
        now = self._clock()
        with self._lock:
            last = self._logged_at.get(kind)
            if last is not None and now - last < EVERY_S:
                self._kept_back[kind] = self._kept_back.get(kind, 0) + 1
                return
            self._logged_at[kind] = now
            kept_back = self._kept_back.pop(kind, 0)
        self._warn(kind, kept_back=kept_back, **fields)
