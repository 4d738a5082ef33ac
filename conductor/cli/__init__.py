"""The command line: above everything, imported by nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from conductor import exit_codes
from conductor.cli.command_registry import command_line
from conductor.processes.logs import set_up_logs
from models.errors import Rejected

DEBUG = "--debug"


def main() -> None:
    """Run the command line of this process and end it with the contract's exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; nothing but a defect under `--debug` is raised.

    `--debug` is taken wherever it stands: what failed is not known before it fails.
    """
    debug = DEBUG in arguments
    words = [word for word in arguments if word != DEBUG]
    set_up_logs("debug" if debug else "error")
    try:
        _refuse_no_text(words)
        code = command_line(words)(args=words, prog_name="conductor", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, typer.Abort) as error:  # noqa: BLE001 - the last handler
        return exit_codes.report_error(error, words, debug=debug)
    return code if isinstance(code, int) else exit_codes.DONE


def _refuse_no_text(words: Sequence[str]) -> None:
    """Raise `Rejected` for a word whose bytes are no UTF-8: nothing of ours is called so."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            message = f"the argument {exit_codes.printable(word)} is no text: should be UTF-8"
            raise Rejected("argument_invalid", message) from None
