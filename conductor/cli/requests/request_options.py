"""The options that every command with a request has, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import typer

from conductor.cli.options import DEFAULT_PROJECT, Deadline, Project, Timeout, Wait
from conductor.cli.rendering.output import Format, Output
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S

InstanceName = Annotated[
    str, typer.Argument(metavar="INSTANCE", help="The id, or a name that only one has.")
]


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """For which project a request is sent, until when it may run, and how it is followed."""

    project: str = DEFAULT_PROJECT
    deadline: float | None = None
    wait: bool = False
    timeout: float = DEFAULT_TIMEOUT_S
    output: Format | None = None


def _declared(
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Declare the options, in the order of the help."""


_DECLARED: Final = tuple(inspect.signature(_declared, eval_str=True).parameters.values())
_NAMES: Final = tuple(field.name for field in fields(RequestOptions))


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with these options behind its own; it gets them as `options`."""

    def run(**given: Any) -> None:
        options = RequestOptions(**{name: given.pop(name) for name in _NAMES})
        command(**given, options=options)

    signature = inspect.signature(command, eval_str=True)
    own = [entry for name, entry in signature.parameters.items() if name != "options"]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[
            entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in (*own, *_DECLARED)
        ]
    )
    return run
