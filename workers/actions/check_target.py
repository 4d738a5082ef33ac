"""Say whether this host would take a guest."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work
from workers.actions.guest_specs import wanted
from workers.tracker import guest_of


def check_target(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` with the reason why `spawn` would be refused now."""
    spec = wanted(work)
    work.tracker.check(guest_of(work.instance_id, spec))
    work.hypervisor.check_target(work.instance_id, spec)
    return {}
