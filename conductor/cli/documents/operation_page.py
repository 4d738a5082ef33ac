"""Every operation as its definition has it: steps in their order, each with its undo beside it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from conductor.operations.engine.definition import MAX_ATTEMPTS, Operation, Step
from conductor.operations.operation_registry import OPERATIONS
from models.messages.requests import PREFIX, REQUESTS, InstanceRequest

_BUSY: Final = {
    "reject": "the request is refused",
    "queue": "the request waits its turn",
    "supersede": "the other operation is undone first, then this one takes its turn",
}
_INTRO: Final = """\
# Operations

Generated from the definitions in `conductor/operations` by `conductor docs operations`; do not
edit.

Steps run from top to bottom. When one fails, the undos of those before it run from there to the
top, and its own first where a host may have done half of it; then everything is as it was. From the
point of no return on, whose name is **bold**, nothing is undone: what is left is tried until done.
"""


def operations_page() -> str:
    """Return the page of every operation, as Markdown."""
    return "\n".join([_INTRO, *(_section(operation) for operation in OPERATIONS.values())])


def _section(operation: Operation[Any]) -> str:
    lines = [
        f"## {operation.kind}\n",
        f"{_about(operation)}\n",
        *_rules(operation),
        "",
        "| step | what it does | undo | what the undo does |",
        "|---|---|---|---|",
        *(_step(number, step) for number, step in enumerate(operation.steps, start=1)),
        "",
    ]
    return "\n".join(lines)


def _about(operation: Operation[Any]) -> str:
    """Return the sentence of the request, or of the file where no request asks for it."""
    request = REQUESTS.get(PREFIX + operation.kind)
    if request is not None:
        return _first(request.__doc__)
    return _first(importlib.import_module(operation.steps[0].run.__module__).__doc__)


def _rules(operation: Operation[Any]) -> Iterator[str]:
    accept, failed, given_up = operation.run_accept, operation.on_failure, operation.on_given_up
    if accept is not None:
        yield f"- Accepted: {_first(accept.__doc__)}"
        if issubclass(REQUESTS[PREFIX + operation.kind], InstanceRequest):
            yield f"- Where another operation runs on the instance, {_BUSY[operation.when_busy]}."
    else:
        yield "- Nobody asks for it: it is the child of another operation."
    yield f"- It is undone after {operation.deadline_s:,.0f} s, where the request sets no deadline."
    for what, run in (
        ("When it has failed", failed),
        ("When it cannot be finished", given_up),
        ("Replayed", operation.run_replay),
    ):
        if run is not None:
            yield f"- {what}: {_first(run.__doc__)}"


def _step(number: int, step: Step[Any]) -> str:
    name = f"**{step.name}**" if step.pivot else step.name
    does = _first(step.run.__doc__)
    if step.retry_from is not None:
        again = f"from {step.retry_from.name}, {MAX_ATTEMPTS} times in all"
        does = f"{does} When the host fails, again {again}."
    undo = step.run_undo
    return f"| {number} {name} | {does} | {_name(undo)} | {_first(undo.__doc__) if undo else ''} |"


def _name(run: Callable[..., Any] | None) -> str:
    return "" if run is None else run.__name__


def _first(docstring: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((docstring or "").partition("\n\n")[0].split())
