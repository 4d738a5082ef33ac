"""What each action makes of a simulated guest: pure functions from domain to domain."""

from __future__ import annotations

from dataclasses import replace

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.root_disks import DiskImage, RootDisk
from workers.hypervisor.ports import GuestDomain, Power
from workers.hypervisor.simulated_disks import disk_of


def existing(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    """Return the guest; raise `HostRefused` (`domain_missing`) when there is none."""
    if before is None:
        message = f"the host has no instance {instance_id}"
        raise HostRefused("domain_missing", message, instance_id=instance_id)
    return before


def powered(instance_id: InstanceId, before: GuestDomain | None, power: Power) -> GuestDomain:
    """Return the guest with another power state, and no longer as copied."""
    return replace(existing(instance_id, before), power=power, copied_to=None)


def held(instance_id: InstanceId, before: GuestDomain | None, power: Power) -> GuestDomain:
    """Return a running guest paused or suspended; one that is so already stays so."""
    there = existing(instance_id, before)
    if there.power == power:
        return there
    return powered(instance_id, must_run(instance_id, there), power)


def rebooted(instance_id: InstanceId, before: GuestDomain | None, *, hard: bool) -> GuestDomain:
    """Return the guest running, from its disk; a soft reboot needs one that runs."""
    there = with_disk(instance_id, before)
    return powered(instance_id, there if hard else must_run(instance_id, there), "running")


def with_disk(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    """Return the guest; raise `HostRefused` (`disk_awaited`) before its disk has come."""
    there = existing(instance_id, before)
    if there.disk is None:
        raise awaits_disk(instance_id)
    return there


def awaits_disk(instance_id: InstanceId) -> HostRefused:
    """Return the error of a guest that awaits its disk from another host."""
    message = f"the disk of instance {instance_id} has not come yet"
    return HostRefused("disk_awaited", message, instance_id=instance_id)


def must_be_off(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    """Return the guest; raise `HostRefused` (`still_running`) when it runs, or only pauses."""
    there = existing(instance_id, before)
    if there.power in ("running", "paused"):
        text = f"instance {instance_id} runs: its disk changes meanwhile"
        raise HostRefused("still_running", text, instance_id=instance_id)
    return there


def must_run(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    """Return the guest; raise `HostRefused` (`not_running`) when it does not run."""
    there = existing(instance_id, before)
    if there.power != "running":
        message = f"instance {instance_id} is {there.power}: it must run"
        raise HostRefused("not_running", message, instance_id=instance_id, power=there.power)
    return there


def activated(
    instance_id: InstanceId, before: GuestDomain | None, disk: DiskImage | None
) -> GuestDomain:
    """Return the guest running, with the disk that came with its memory, if one did."""
    there = existing(instance_id, before)
    if there.power == "nostate" and disk is not None:
        there = replace(there, disk=disk_of(disk))
    there = with_disk(instance_id, there)
    if there.power == "shutdown":  # from its disk it would have forgotten what it was doing
        message = f"instance {instance_id} is stopped and waits for no memory"
        raise HostRefused("not_waiting", message, instance_id=instance_id)
    return replace(there, power="running")


def defined(instance_id: InstanceId, spec: GuestDefinition) -> GuestDomain:
    """Return a new guest as its spec defines it."""
    # Power and disk are the guest's, not the definition's: specs that differ in them are the same.
    own = {"power": "running", "root_disk": RootDisk()}
    return GuestDomain(instance_id, spec.power, spec.model_copy(update=own))
