"""What the actions that make or change a guest have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from workers.actions.action_context import Work
from workers.tracker import guest_of


def requested_spec(work: Work) -> GuestDefinition:
    """Return the requested guest; raise `Rejected` when the arguments are malformed."""
    return parse(GuestDefinition, work.instruction.args)


@contextmanager
def admitted(work: Work, spec: GuestDefinition) -> Iterator[None]:
    """Have the tracker count the guest as it will be, and in the end as it is.

    Raises `HostRefused` with the tracker's reason, or `Rejected` for a malformed placement.
    """
    try:
        work.tracker.admit(guest_of(work.instance_id, spec))
        yield
    finally:
        work.settle()
