"""Take a live migration back on its source."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def abort_copy(work: Work) -> dict[str, Any]:
    """Have the guest run here, be the copy not begun, under way or done.

    Raises `HostRefused` (`domain_missing`) when there is no guest.
    """
    work.hypervisor.abort_copy(work.instance_id)
    return {"power_state": "running"}
