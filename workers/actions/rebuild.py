"""Make the guest of an instance anew."""

from __future__ import annotations

from typing import Any

from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition, RebuildArgs
from workers.actions.action_context import Work
from workers.actions.guest_specs import admitted


def rebuild(work: Work) -> dict[str, Any]:
    """Have the guest made from its image, whether or not there was one, as placed and powered.

    With `unless_made`, one that is there and of that image already keeps its disk: only its power
    is set. Raises `HostRefused` with the tracker's or hypervisor's reason and the guest as it was.
    """
    args = parse(RebuildArgs, work.instruction.args)
    spec = GuestDefinition.model_validate(args.model_dump(exclude={"unless_made"}))
    if args.unless_made and _is_made(work, spec):
        act = work.hypervisor.power_on if spec.power == "running" else work.hypervisor.power_off
        act(work.instance_id)
        return {"power_state": spec.power}
    with admitted(work, spec):
        work.hypervisor.rebuild(work.instance_id, spec)
    return {"power_state": spec.power}


def _is_made(work: Work, spec: GuestDefinition) -> bool:
    domain = work.hypervisor.domain(work.instance_id)
    there = domain.spec if domain is not None else None
    return there is not None and there.image_id == spec.image_id
