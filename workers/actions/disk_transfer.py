"""Move the root disk of a stopped guest: the source offers it, the target takes it."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from models.messages.guests.root_disks import DiskImage
from workers.actions.action_context import Work


def offer_disk(work: Work) -> dict[str, Any]:
    """Say where the disk is and what proves it; it stays as it is here.

    Raises `HostRefused` (`domain_missing`, `still_running`, `disk_awaited`).
    """
    return {"disk": work.hypervisor.offer_disk(work.instance_id).to_json()}


class TakeArgs(Message):
    """The disk as the other host offers it."""

    disk: DiskImage


def take_disk(work: Work) -> dict[str, Any]:
    """Have the disk here, whole, and answer its checksum.

    Raises `HostRefused` (`domain_missing`, `still_running`, `disk_damaged`) with nothing kept.
    """
    args = parse(TakeArgs, work.instruction.args)
    return {"checksum": work.hypervisor.take_disk(work.instance_id, args.disk)}
