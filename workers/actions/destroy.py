"""Remove the guest of an instance."""

from __future__ import annotations

from typing import Any

from workers.actions.action_context import Work


def destroy(work: Work) -> dict[str, Any]:
    """Have no guest of this instance on the host, whether or not there was one."""
    try:
        work.hypervisor.destroy(work.instance_id)
    finally:
        work.settle()
    return {}
