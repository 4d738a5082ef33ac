"""Prefix queries on text fields: people type the beginning of an id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A criterion of `where` for a text field: any value with this prefix (lower case).

    What is absent has none, not even the empty one.
    """

    text: str
