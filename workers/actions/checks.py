"""Checks that change nothing: the disk of a guest, a migration's source, and its target."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work
from workers.actions.guest_specs import requested_spec
from workers.tracker import guest_of


def check_disk(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` (`domain_missing`, `disk_awaited`) when it has none."""
    work.hypervisor.check_disk(work.instance_id)
    return {}


def check_source(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` (`domain_missing`, `not_running`) when it cannot."""
    work.hypervisor.check_source(work.instance_id)
    return {"power_state": "running"}


def check_target(work: Work) -> dict[str, Any]:
    """Change nothing; raise `HostRefused` with the reason why `spawn` would be refused now."""
    spec = requested_spec(work)
    work.tracker.check(guest_of(work.instance_id, spec))
    work.hypervisor.check_target(work.instance_id, spec)
    return {}
