"""The files that keep what guests write to their consoles: read in parts, and bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from models.messages.guests.console_parts import ConsolePart

MOST_KEPT_BYTES: Final = 8 << 20
"""A console that is longer is begun anew; libvirt's own log daemon turns it over before."""
LEFT_BYTES: Final = 1 << 20
"""So much of its end is kept beside it then."""


def read_part(log: Path, offset: int | None, most_bytes: int) -> ConsolePart:
    """Return the part from `offset` on, or the end; nothing of a console that has no file yet."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - most_bytes) if offset is None else offset
            if start > size:
                start = 0  # it was begun anew
            file.seek(start)
            content = file.read(most_bytes)
    except FileNotFoundError:
        return ConsolePart(text="", next_offset=0)
    text = content.decode("utf-8", "replace")
    return ConsolePart(text=text, next_offset=start + len(content))


def bound(log: Path) -> bool:
    """Begin a console anew that has become too long, with its end kept beside it; say whether.

    QEMU appends, so it goes on at the beginning. What it writes between the two steps is lost.
    """
    try:
        if log.stat().st_size <= MOST_KEPT_BYTES:
            return False
        with log.open("rb") as file:
            file.seek(-LEFT_BYTES, os.SEEK_END)
            log.with_suffix(".log.1").write_bytes(file.read())
        os.truncate(log, 0)
    except FileNotFoundError:
        return False
    return True
