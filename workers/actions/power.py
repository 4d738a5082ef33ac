"""Start, stop, hold or restart the guest of an instance, keeping its place on the host."""

from __future__ import annotations

from typing import Any

from models.messages.base import Message, parse
from workers.actions.action_context import Work


def power_on(work: Work) -> dict[str, Any]:
    """Have the guest run; raise `HostRefused` (`domain_missing`) when there is none."""
    work.hypervisor.power_on(work.instance_id)
    return {"power_state": "running"}


def power_off(work: Work) -> dict[str, Any]:
    """Have the guest not run; raise `HostRefused` (`domain_missing`) when there is none."""
    work.hypervisor.power_off(work.instance_id)
    return {"power_state": "shutdown"}


def pause(work: Work) -> dict[str, Any]:
    """Have the guest stand still; raise `HostRefused` (`domain_missing`, `not_running`)."""
    work.hypervisor.pause(work.instance_id)
    return {"power_state": "paused"}


def suspend(work: Work) -> dict[str, Any]:
    """Have the guest's memory saved and it stopped; raise `HostRefused` as `pause` does."""
    work.hypervisor.suspend(work.instance_id)
    return {"power_state": "suspended"}


class RebootArgs(Message):
    """Whether the guest is asked first."""

    hard: bool = False


def reboot(work: Work) -> dict[str, Any]:
    """Have the guest started anew; raise `HostRefused` (`domain_missing`, `not_running`)."""
    work.hypervisor.reboot(work.instance_id, hard=parse(RebootArgs, work.instruction.args).hard)
    return {"power_state": "running"}
