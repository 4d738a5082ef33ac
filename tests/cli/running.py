"""Running commands in this process, and a small embedded system for them to talk to."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from conductor.cli import run


@dataclass(frozen=True)
class Result:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Result]


def runner(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a command; output and logging are as before afterwards."""

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        handlers, level = logging.root.handlers[:], logging.root.level
        try:
            code = run([str(argument) for argument in arguments])
        finally:
            logging.root.handlers[:] = handlers
            logging.root.setLevel(level)
            structlog.reset_defaults()
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return command


def one_line(text: str) -> bool:
    """Say whether a text is exactly one line."""
    return text.endswith("\n") and text.count("\n") == 1
