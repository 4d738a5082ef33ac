"""Let the guest of an instance run where a live migration has brought it."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from models.messages.root_disks import DiskImage
from workers.actions.action_context import Work


class ActivateArgs(Message):
    """The disk that has come with the memory, as the copy says."""

    disk: DiskImage | None = None


def activate(work: Work) -> dict[str, Any]:
    """Have the guest run; raise `HostRefused` (`domain_missing`, `not_waiting` if stopped)."""
    args = parse(ActivateArgs, work.instruction.args)
    work.hypervisor.activate(work.instance_id, args.disk)
    return {"power_state": "running"}
