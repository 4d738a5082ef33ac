"""Define the guest of an instance, and start it or not."""

from __future__ import annotations

from typing import Any

from models.errors import HostRefused
from workers.actions.action_context import Work
from workers.actions.guest_specs import requested_spec
from workers.tracker import guest_of


def spawn(work: Work) -> dict[str, Any]:
    """Have the guest exactly as placed, with the requested power.

    Raises `HostRefused` (`expired`, or the tracker's or hypervisor's reason) with nothing left
    on the host. A guest that is there already is never too late: it was spawned before.
    """
    spec = requested_spec(work)
    guest = guest_of(work.instance_id, spec)
    try:
        if work.hypervisor.domain(work.instance_id) is None:
            _refuse_if_expired(work)
            work.tracker.admit(guest)
        work.hypervisor.spawn(work.instance_id, spec)
    finally:
        work.settle()
    result: dict[str, Any] = {"power_state": spec.power}
    if spec.power == "nostate":
        result["destination"] = work.hypervisor.destination(work.instance_id)
    return result


def _refuse_if_expired(work: Work) -> None:
    expires_at = work.instruction.expires_at
    if expires_at is not None and work.now >= expires_at:
        late_s = work.now - expires_at
        message = f"the instruction to spawn expired {late_s:.0f} s ago"
        raise HostRefused("expired", message, late_s=late_s)
