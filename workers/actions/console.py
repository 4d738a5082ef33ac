"""Read what a guest has written to its console."""

from __future__ import annotations

from typing import Any

from models.ids import InstanceId
from models.messages.base import parse
from models.messages.guests.console_parts import ConsoleRequest
from workers.actions.action_context import Work


def read_console(work: Work) -> dict[str, Any]:
    """Return a part of it; raise `HostRefused` (`domain_missing`) when there is no such guest.

    The instance of the instruction stands for the operation: nothing that the guest waits for is
    waited for.
    """
    wanted = parse(ConsoleRequest, work.instruction.args)
    guest = InstanceId(wanted.guest_id)
    return work.hypervisor.console(guest, wanted.offset, wanted.most_bytes).to_json()
