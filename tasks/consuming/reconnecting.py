"""Pauses between connections that do not last: exponential backoff."""

from __future__ import annotations

from typing import Final

LASTS_S: Final = 20.0
"""A connection that has lasted so long is followed by the next at once."""

FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 10.0


class Backoff:
    """The pause before a connection doubles with each before it that was soon lost."""

    def __init__(self) -> None:
        """Begin without a pause."""
        self._connected_at: float | None = None
        self._pause_s = 0.0

    def pause_s(self, now: float) -> float:
        """Return how long to wait before connecting now; times are monotonic, in seconds."""
        at = self._connected_at
        if at is None or now - at >= LASTS_S + self._pause_s:
            self._pause_s = 0.0
        else:
            self._pause_s = min(MOST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        self._connected_at = now
        return self._pause_s
