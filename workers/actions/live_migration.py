"""Live migration: copy on the source, activate on the target, or abort on the source."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.root_disks import DiskImage
from workers.actions.action_context import Work


def copy(work: Work) -> dict[str, Any]:
    """Have the guest copied and stopped here; progress is reported meanwhile.

    Raises `HostRefused` (`domain_missing`, `not_running`, `aborted` when something newer came for
    the instance) with the guest as it was.
    """
    target = parse(CopyTarget, work.instruction.args)
    disk = work.hypervisor.copy(work.instance_id, target, work.on_progress)
    work.on_progress(100)
    return {"power_state": "shutdown", "disk": disk.to_json()}


class ActivateArgs(Message):
    """The disk that has come with the memory, as the copy says."""

    disk: DiskImage | None = None


def activate(work: Work) -> dict[str, Any]:
    """Have the guest run; raise `HostRefused` (`domain_missing`, `not_waiting` if stopped)."""
    args = parse(ActivateArgs, work.instruction.args)
    work.hypervisor.activate(work.instance_id, args.disk)
    return {"power_state": "running"}


def abort_copy(work: Work) -> dict[str, Any]:
    """Have the guest run here, be the copy not begun, under way or done.

    Raises `HostRefused` (`domain_missing`) when there is no guest.
    """
    work.hypervisor.abort_copy(work.instance_id)
    return {"power_state": "running"}
