"""The action of each verb that a host understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from models.errors import HostRefused
from workers.actions.action_context import Action, Work
from workers.actions.checks import check_disk, check_source, check_target
from workers.actions.console import read_console
from workers.actions.destroy import destroy
from workers.actions.disk_transfer import offer_disk, take_disk
from workers.actions.fetch_images import cache_images
from workers.actions.live_migration import abort_copy, activate, copy
from workers.actions.power import pause, power_off, power_on, reboot, suspend
from workers.actions.rebuild import rebuild
from workers.actions.resize_guest import reshape
from workers.actions.snapshot import snapshot
from workers.actions.spawn import spawn

SPAWN, DESTROY, COPY, CACHE_IMAGES = "spawn", "destroy", "copy", "cache_images"
READ_CONSOLE = "read_console"
URGENT: Final = frozenset(
    {DESTROY, "power_on", "power_off", "activate", "abort_copy", READ_CONSOLE}
)
"""What is done in a moment, and never waits behind what is not."""
LONG: Final = frozenset({SPAWN, COPY, CACHE_IMAGES, "snapshot", "rebuild", "suspend", "take_disk"})
"""What moves whole disks or memories, and may take its time."""

VERBS: Mapping[str, Action] = {
    SPAWN: spawn,
    DESTROY: destroy,
    "power_on": power_on,
    "power_off": power_off,
    "pause": pause,
    "suspend": suspend,
    "reboot": reboot,
    "reshape": reshape,
    "rebuild": rebuild,
    "snapshot": snapshot,
    "offer_disk": offer_disk,
    "take_disk": take_disk,
    "check_disk": check_disk,
    "check_target": check_target,
    "check_source": check_source,
    COPY: copy,
    "abort_copy": abort_copy,
    "activate": activate,
    CACHE_IMAGES: cache_images,
    READ_CONSOLE: read_console,
}


def perform(work: Work) -> dict[str, Any]:
    """Do what the instruction says; raise `HostRefused` (`verb_unknown`) when it is none of ours.

    A newer conductor may know verbs that this host does not: another host may.
    """
    verb = work.instruction.verb
    action = VERBS.get(verb)
    if action is None:
        raise HostRefused("verb_unknown", f"this host does not know the verb {verb}", verb=verb)
    return action(work)
