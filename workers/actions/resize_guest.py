"""Give the guest of an instance another size or place on its own host."""

from __future__ import annotations

from typing import Any

from models.errors import HostRefused
from workers.actions.action_context import Work
from workers.actions.guest_specs import admitted, requested_spec


def reshape(work: Work) -> dict[str, Any]:
    """Have the guest as newly defined, with the requested power.

    What it had before counts as its own. Raises `HostRefused` (`domain_missing` where there is no
    guest, or the tracker's or hypervisor's reason) with the guest as it was.
    """
    spec = requested_spec(work)
    if work.hypervisor.domain(work.instance_id) is None:
        message = f"the host has no instance {work.instance_id}"
        raise HostRefused("domain_missing", message, instance_id=work.instance_id)
    with admitted(work, spec):
        work.hypervisor.reshape(work.instance_id, spec)
    return {"power_state": spec.power}
