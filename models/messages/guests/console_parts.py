"""What a guest has written to its console, in parts: what is asked for, and what is answered."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from models.messages.base import Message
from models.messages.catalogue import Count

MOST_BYTES: Final = 65_536
"""So much of a console is answered at once; more is asked for from where that ended."""

PartBytes = Annotated[int, Field(ge=1, le=MOST_BYTES)]


class ConsoleRequest(Message):
    """Which part: from byte `offset` on, or without one the end, at most `most_bytes`."""

    guest_id: str
    offset: Count | None = None
    most_bytes: PartBytes = 16_384


class ConsolePart(Message):
    """A part of a console's text; the next begins at `next_offset`.

    A console that was begun anew since is answered from its beginning; what is no UTF-8 is
    replaced.
    """

    text: Annotated[str, Field(max_length=MOST_BYTES)]
    next_offset: Count
