"""Let another host take the disk of the guest of an instance."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def offer_disk(work: Work) -> dict[str, Any]:
    """Say where the disk is and what proves it; it stays as it is here.

    Raises `HostRefused` (`domain_missing`, `still_running`, `disk_awaited`).
    """
    return {"disk": work.hypervisor.offer_disk(work.instance_id).to_json()}
