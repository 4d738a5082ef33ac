"""Exit codes, and how a failure is told: one line on stderr, never a traceback unless asked."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

import typer
from typer.exceptions import TyperException

from models.errors import Broken, ConductorError, Conflict, Rejected, Unreachable

DONE: Final = 0
WRONG: Final = 2
NO: Final = 3
AWAY: Final = 4
DEFECT: Final = 70
INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141


def told(error: BaseException, *, debug: bool) -> int:
    """Say in one line what went wrong and return the exit code that it means (CONTRACT §1)."""
    if isinstance(error, BrokenPipeError):
        return _reader_has_gone()
    if debug:
        traceback.print_exception(error)
    text, code = _meaning(error)
    if text:
        say(text)
    return code


def say(text: str) -> None:
    """Write one line to stderr."""
    print(" ".join(text.split()), file=sys.stderr)


def exit_code(error: ConductorError) -> int:
    """Return the exit code of an error of ours."""
    if isinstance(error, Rejected):
        return WRONG
    if isinstance(error, Unreachable | Conflict):
        return AWAY
    return DEFECT if isinstance(error, Broken) else NO


def _meaning(error: BaseException) -> tuple[str, int]:
    if isinstance(error, ConductorError):
        return f"error: {error.message}", exit_code(error)
    if isinstance(error, TyperException):
        return f"error: {error.format_message()}", error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    return f"defect: {type(error).__name__}: {error} (--debug shows where)", DEFECT


def _reader_has_gone() -> int:
    """End quietly when nobody reads our output any more, as `head` does."""
    # Else the interpreter complains when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _PIPE_CLOSED
