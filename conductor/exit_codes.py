"""Exit codes, and how a failure is reported: one line on stderr, never a traceback unless asked."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
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

_ABOUT_AN_OPTION: Final = re.compile(
    r"Invalid value for (?P<options>'-.*?'): (?P<rule>.*)", re.DOTALL
)


def report_error(error: BaseException, words: Sequence[str] = (), *, debug: bool = False) -> int:
    """Say in one line what went wrong and return the exit code that it means.

    `words` is the command line, where the value of a wrong option is looked up.
    """
    if isinstance(error, BrokenPipeError):
        return _reader_has_gone()
    if debug:
        traceback.print_exception(error)
    text, code = _meaning(error, words)
    if text:
        say(text)
    return code


def say(text: str) -> None:
    """Write one line to stderr."""
    print(printable(" ".join(text.split())), file=sys.stderr)


def printable(text: str) -> str:
    """Return text with what would steer a terminal, or be none, written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        name if name.isprintable() or name in "\n\t" else name.encode("unicode_escape").decode()
        for name in text
    )


def exit_code(error: ConductorError) -> int:
    """Return the exit code of an error of ours."""
    if isinstance(error, Rejected):
        return WRONG
    if isinstance(error, Unreachable | Conflict):
        return AWAY
    return DEFECT if isinstance(error, Broken) else NO


def _meaning(error: BaseException, words: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, ConductorError):
        return f"error: {error.message}", exit_code(error)
    if isinstance(error, TyperException):
        message = _with_value(error.format_message(), words)
        # Asked without anything, a command prints its help, and no complaint.
        return f"error: {message}" if message.strip() else "", error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    return f"defect: {type(error).__name__}: {error} (--debug shows where)", DEFECT


def _with_value(message: str, words: Sequence[str]) -> str:
    """Return a complaint about an option with the value that it was given."""
    complaint = _ABOUT_AN_OPTION.fullmatch(message)
    if complaint is None:
        return message
    options, rule = complaint["options"].split(" / "), complaint["rule"]
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if f"'{option}'" not in options:
            continue
        given = value if equals else " ".join(words[place + 1 : place + 2])
        return f"{option} is {given}: {rule.removeprefix('Input ').removeprefix('Value error, ')}"
    return message


def _reader_has_gone() -> int:
    """End quietly when nobody reads our output any more, as `head` does."""
    # Else the interpreter complains when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _PIPE_CLOSED
