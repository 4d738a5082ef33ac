"""Questions that need no service: one JSON case a line in, one JSON answer a line out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypeVar

from pydantic import ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from models.errors import Rejected
from models.hardware import CpuMask, cpus_of
from models.messages.base import Message, rejected

Answer: TypeAlias = dict[str, Any]
Line: TypeAlias = str | bytes
Question: TypeAlias = Callable[[], Answer]
"""Gives all of an answer but its id; raises `Rejected` where the answer is a refusal."""

STDIN = Path("-")


class AnyCase(Message):
    """What every case has; its author's own notes beside it are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: Any = None


C = TypeVar("C", bound=AnyCase)


def answered(line: Line, number: int, shape: type[C], prepare: Callable[[C], Question]) -> Answer:
    """Return the answer to one line, whatever it holds.

    `prepare` makes values of a case that has the shape; what it refuses makes the line
    malformed, what its question refuses is the answer.
    """
    try:
        case = _read(line, shape)
        question = prepare(case)
    except Rejected as error:
        return {"id": _id_of(line), "error": {"line": number, "message": error.message}}
    try:
        return {"id": case.id, **question()}
    except Rejected as error:
        return {"id": case.id, "rejected": complaint(error)}


def complaint(error: Rejected) -> Answer:
    """Return a refusal as the contract writes it."""
    return {"code": error.code, "key": error.key, "message": error.message}


def listed(cpus: CpuMask | None) -> list[int] | None:
    """Return a CPU set as the contract writes it, None for a set that nobody gave."""
    return None if cpus is None else list(cpus_of(cpus))


def answer_lines(lines: Iterable[Line], out: TextIO, answer: Callable[[Line, int], Answer]) -> None:
    """Answer every line in order, each as soon as it is read; blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            out.write(_text(answer(line, number)) + "\n")
            out.flush()


def answer_file(cases: Path, answer: Callable[[Line, int], Answer]) -> None:
    """Answer the lines of a file, or of stdin for `-`, on stdout.

    Raises `Rejected` (`file_unreadable`). Read as bytes, so that a line that is no Unicode is
    answered as malformed like any other and ends nothing.
    """
    if cases == STDIN:
        answer_lines(sys.stdin.buffer, sys.stdout, answer)
        return
    try:
        with cases.open("rb") as lines:
            answer_lines(lines, sys.stdout, answer)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"cases is {cases}: {error.strerror}"
        raise Rejected("file_unreadable", message, key="cases") from error


def _read(line: Line, shape: type[C]) -> C:
    try:
        return shape.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise Rejected("not_json", f"the line is not JSON: {first['ctx']['error']}") from None
        raise rejected(error) from None
    except ValueError as error:  # text that is no Unicode never reaches the parser
        raise Rejected("not_json", f"the line is not JSON: {error}") from None


def _text(answer: Answer) -> str:
    try:
        return to_json(answer, inf_nan_mode="null").decode()
    except PydanticSerializationError:  # an id that is no Unicode; the slower way escapes it
        return json.dumps(answer)


def _id_of(line: Line) -> object:
    """Return the id of a case that could not be read, as far as there is one."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body.get("id") if isinstance(body, dict) else None
