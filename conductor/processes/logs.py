"""Where log lines go: stderr, as JSON unless a person is looking, never stdout."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog


def set_up_logs(level: str, file: TextIO | None = None) -> None:
    """Send the lines of this process and its libraries, from `level` on, to a file or stderr."""
    number = logging.getLevelNamesMapping()[level.upper()]
    person = file is None and sys.stderr.isatty()
    common: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # A traceback is one value of a JSON line; a console prints it as Python does.
    if not person:
        common.append(structlog.processors.format_exc_info)
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if person
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*common, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: structlog.PrintLogger(file or sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(file or sys.stderr)
    _set_up_libraries(handler, number, [*common, structlog.stdlib.add_logger_name], renderer)


def _set_up_libraries(
    handler: logging.Handler, number: int, common: list[Any], renderer: Any
) -> None:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=[remove, renderer])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries are told about from warnings on; what they do in detail is no news of ours.
    root.setLevel(max(number, logging.WARNING))
