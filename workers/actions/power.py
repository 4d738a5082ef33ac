"""Start or stop the guest of an instance, keeping its place on the host."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def power_on(work: Work) -> dict[str, Any]:
    """Have the guest run; raise `HostRefused` (`domain_missing`) when there is none."""
    work.hypervisor.power_on(work.instance_id)
    return {"power_state": "running"}


def power_off(work: Work) -> dict[str, Any]:
    """Have the guest not run; raise `HostRefused` (`domain_missing`) when there is none."""
    work.hypervisor.power_off(work.instance_id)
    return {"power_state": "shutdown"}
