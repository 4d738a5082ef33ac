"""Let the guest of an instance run where a live migration has brought it."""

from __future__ import annotations

from typing import Any

from workers.actions.work import Work


def activate(work: Work) -> dict[str, Any]:
    """Have the guest run; raise `HostRefused` (`domain_missing`, `not_waiting` if stopped)."""
    work.hypervisor.activate(work.instance_id)
    return {"power_state": "running"}
