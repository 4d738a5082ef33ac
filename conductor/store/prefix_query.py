"""How a record is asked for by the beginning of a text, as people type ids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Asked of a text field instead of a value: whatever begins so (small letters)."""

    text: str
