"""Take the disk of the guest of an instance from the host that offers it."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from models.messages.root_disks import DiskImage
from workers.actions.action_context import Work


class TakeArgs(Message):
    """The disk as the other host offers it."""

    disk: DiskImage


def take_disk(work: Work) -> dict[str, Any]:
    """Have the disk here, whole, and answer its checksum.

    Raises `HostRefused` (`domain_missing`, `still_running`, `disk_damaged`) with nothing kept.
    """
    args = parse(TakeArgs, work.instruction.args)
    return {"checksum": work.hypervisor.take_disk(work.instance_id, args.disk)}
