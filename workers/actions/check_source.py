"""Say whether the guest of an instance can be copied from here."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def check_source(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` (`domain_missing`, `not_running`) when it cannot."""
    work.hypervisor.check_source(work.instance_id)
    return {"power_state": "running"}
