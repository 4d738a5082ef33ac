"""Save the disk of the guest of an instance as an image."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def snapshot(work: Work) -> dict[str, Any]:
    """Have the image saved, the guest untouched; raise `HostRefused` (`domain_missing`)."""
    return {"disk": work.hypervisor.snapshot(work.instance_id).to_json()}
