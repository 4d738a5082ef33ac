"""Say whether the guest of an instance has its disk."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def check_disk(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` (`domain_missing`, `disk_awaited`) when it has none."""
    work.hypervisor.check_disk(work.instance_id)
    return {}
