"""A call of the simulated hypervisor while it runs: it takes its time and meets its fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from time import monotonic
from typing import Final, TypeAlias

from models.errors import HostRefused, Unreachable
from models.ids import InstanceId
from workers.hypervisor.fault_injection import InjectedFault
from workers.hypervisor.ports import IMAGE_CORRUPT, OnProgress

TICK_S: Final = 1.0
"""Seconds between two progress reports of a copy."""


@dataclass(eq=False)
class RunningCall:
    """A call under way; compared by identity, since an instance may have several."""

    aborted: Event = field(default_factory=Event)


Wait: TypeAlias = Callable[[RunningCall, InjectedFault], None]
"""Takes the time of a call, until it is over or aborted."""


def wait(call: RunningCall, fault: InjectedFault) -> None:
    """Wait for the latency of a call; one that hangs ends only when it is aborted."""
    if fault.ending == "hang":
        call.aborted.wait()
    elif fault.latency_s > 0:
        call.aborted.wait(fault.latency_s)


def wait_with_progress(call: RunningCall, fault: InjectedFault, on_progress: OnProgress) -> None:
    """Wait likewise, and report in between what part of the latency has passed, in percent."""
    began = monotonic()
    while fault.ending != "hang":
        passed_s = monotonic() - began
        if passed_s + TICK_S >= fault.latency_s:
            break
        if call.aborted.wait(TICK_S):
            return
        on_progress(min(99, int(100 * (passed_s + TICK_S) / fault.latency_s)))
    wait(
        call,
        replace(fault, latency_s=max(0.0, began + fault.latency_s - monotonic())),
    )


def raise_unless_done(instance_id: InstanceId, verb: str, fault: InjectedFault) -> None:
    """Raise what the injected fault says of a call that changes nothing."""
    if fault.ending == "refused":
        message = f"the simulated hypervisor refuses to {verb} instance {instance_id}"
        raise HostRefused("simulated_refusal", message, instance_id=instance_id)
    if fault.ending == "lost_before":
        raise lost(instance_id, verb)
    if fault.ending == "corrupt":
        message = f"an image came damaged during {verb} of {instance_id}: nothing is kept of it"
        raise Unreachable(IMAGE_CORRUPT, message, instance_id=instance_id)


def lost(instance_id: InstanceId, verb: str) -> Unreachable:
    """Return the error of a call whose answer never came: its outcome is unknown."""
    message = f"the simulated hypervisor gave no answer to {verb} of instance {instance_id}"
    return Unreachable("hypervisor_silent", message, instance_id=instance_id)
