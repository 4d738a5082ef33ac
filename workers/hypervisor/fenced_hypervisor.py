"""A fence between an agent and its hypervisor: calls of a killed agent are not passed on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident
from time import monotonic
from typing import Any

from models.ids import InstanceId
from models.messages.guests.console_parts import ConsolePart
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.hypervisor.ports import GuestDomain, Hardware, Hypervisor, OnChange, OnProgress


class AgentDead(Exception):
    """The agent that makes this call has been killed."""


class FencedHypervisor:
    """Passes calls on to a hypervisor until `cut`, and none after.

    Where agents share a process with their successors, a dead one's thread that still runs
    could otherwise spawn a guest that the successor has meanwhile destroyed.
    """

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._changed = Condition()
        self._calls: list[tuple[int, InstanceId]] = []
        self._cut = False

    @property
    def name(self) -> str:
        """The kind of hypervisor, as `--hypervisor` names it."""
        return self._hypervisor.name

    @property
    def machine_id(self) -> str:
        """What tells this machine from every other."""
        return self._hypervisor.machine_id

    def hardware(self) -> Hardware:
        """Return what the host is made of."""
        return self._hypervisor.hardware()

    def watch(self, on_change: OnChange) -> None:
        """Tell of every guest whose power changes, until cut."""
        self._hypervisor.watch(lambda name: None if self._cut else on_change(name))

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every guest of the host."""
        return self._hypervisor.domains()

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when the host has no such guest."""
        return self._hypervisor.domain(instance_id)

    def spawn(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Define a guest with the power of its spec; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.spawn(instance_id, spec)

    def reshape(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Give a guest another definition and power; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.reshape(instance_id, spec)

    def rebuild(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Make a guest anew from its image; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.rebuild(instance_id, spec)

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.destroy(instance_id)

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.power_on(instance_id)

    def power_off(self, instance_id: InstanceId) -> None:
        """Stop a guest, keeping it; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.power_off(instance_id)

    def pause(self, instance_id: InstanceId) -> None:
        """Let a guest stand still; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.pause(instance_id)

    def suspend(self, instance_id: InstanceId) -> None:
        """Save a guest's memory and stop it; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.suspend(instance_id)

    def reboot(self, instance_id: InstanceId, *, hard: bool) -> None:
        """Start a guest anew; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.reboot(instance_id, hard=hard)

    def snapshot(self, instance_id: InstanceId) -> DiskImage:
        """Save the disk of a guest as an image; `AgentDead` once cut."""
        with self._calling(instance_id):
            return self._hypervisor.snapshot(instance_id)

    def offer_disk(self, instance_id: InstanceId) -> DiskImage:
        """Let another host take the disk of a guest; `AgentDead` once cut."""
        with self._calling(instance_id):
            return self._hypervisor.offer_disk(instance_id)

    def take_disk(self, instance_id: InstanceId, disk: DiskImage) -> str:
        """Have a disk that another host offers; `AgentDead` once cut."""
        with self._calling(instance_id):
            return self._hypervisor.take_disk(instance_id, disk)

    def check_disk(self, instance_id: InstanceId) -> None:
        """Say whether a guest has its disk; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.check_disk(instance_id)

    def check_target(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Say whether such a guest could run here; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.check_target(instance_id, spec)

    def check_source(self, instance_id: InstanceId) -> None:
        """Say whether there is a guest that runs; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.check_source(instance_id)

    def activate(self, instance_id: InstanceId, disk: DiskImage | None = None) -> None:
        """Let a guest run whose memory and disk have come; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.activate(instance_id, disk)

    def destination(self, instance_id: InstanceId) -> dict[str, Any]:
        """Say what the source must know of the guest that waits here; `AgentDead` once cut."""
        with self._calling(instance_id):
            return self._hypervisor.destination(instance_id)

    def copy(
        self, instance_id: InstanceId, target: CopyTarget, on_progress: OnProgress
    ) -> DiskImage:
        """Copy a running guest to another host; `AgentDead` once cut."""
        with self._calling(instance_id):
            return self._hypervisor.copy(instance_id, target, on_progress)

    def abort_copy(self, instance_id: InstanceId) -> None:
        """Have a guest run that was being copied, or had been; `AgentDead` once cut."""
        with self._calling(instance_id):
            self._hypervisor.abort_copy(instance_id)

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        return self._hypervisor.images()

    def cache_image(self, owner: InstanceId, image: ImageFile) -> None:
        """Have an image in the cache; `AgentDead` once cut."""
        with self._calling(owner):
            self._hypervisor.cache_image(owner, image)

    def console(self, instance_id: InstanceId, offset: int | None, most_bytes: int) -> ConsolePart:
        """Return what a guest has written to its console, from `offset` on or at its end."""
        return self._hypervisor.console(instance_id, offset, most_bytes)

    def age_out(self, now: float, unused_s: float) -> tuple[str, ...]:
        """Remove the cached images that no guest has had for so long."""
        return self._hypervisor.age_out(now, unused_s)

    def abort(self, instance_id: InstanceId) -> None:
        """Make the calls that run for this instance end now."""
        self._hypervisor.abort(instance_id)

    def cut(self, timeout_s: float) -> bool:
        """Abort the calls that run, let none begin, and say whether all have ended in time."""
        until = monotonic() + timeout_s
        with self._changed:
            self._cut = True
        while True:
            with self._changed:
                calls = tuple(self._calls)
            # The caller's own call cannot end while we wait here, but it can be aborted.
            for _, instance_id in calls:
                self._hypervisor.abort(instance_id)
            if all(thread == get_ident() for thread, _ in calls):
                return True
            if monotonic() > until:
                return False
            with self._changed:
                self._changed.wait(0.01)

    @contextmanager
    def _calling(self, instance_id: InstanceId) -> Iterator[None]:
        call = (get_ident(), instance_id)
        with self._changed:
            if self._cut:
                raise AgentDead
            self._calls.append(call)
        try:
            yield
        finally:
            with self._changed:
                self._calls.remove(call)
                self._changed.notify_all()
