"""Make the guest of an instance anew."""

from __future__ import annotations

from typing import Any

from workers.actions.guests import admitted, wanted
from workers.actions.work import Work


def rebuild(work: Work) -> dict[str, Any]:
    """Have the guest made from its image, whether or not there was one, as placed and powered.

    Raises `HostRefused` with the tracker's or hypervisor's reason and the guest as it was.
    """
    spec = wanted(work)
    with admitted(work, spec):
        work.hypervisor.rebuild(work.instance_id, spec)
    return {"power_state": spec.power}
