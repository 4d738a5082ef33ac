"""Copy the running guest of an instance to the host that it moves to."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from workers.actions.action_context import Work


class CopyArgs(Message):
    """Where the guest goes, and waits already."""

    target: str


def copy(work: Work) -> dict[str, Any]:
    """Have the guest copied and stopped here; how far it is is told meanwhile.

    Raises `HostRefused` (`domain_missing`, `not_running`, `aborted` when something newer came for
    the instance) with the guest as it was.
    """
    args = parse(CopyArgs, work.instruction.args)
    disk = work.hypervisor.copy(work.instance_id, args.target, work.on_progress)
    work.on_progress(100)
    return {"power_state": "shutdown", "disk": disk.to_json()}
