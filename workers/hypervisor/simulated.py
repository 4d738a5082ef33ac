"""A simulated hypervisor: it keeps the definitions of guests and injects latency and faults."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from models.errors import Broken, HostRefused
from models.ids import InstanceId
from models.messages.guests.console_parts import ConsolePart
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults, always_done
from workers.hypervisor.guest_changes import (
    activated,
    awaits_disk,
    defined,
    existing,
    held,
    must_be_off,
    must_run,
    powered,
    rebooted,
    with_disk,
)
from workers.hypervisor.ports import GuestDomain, Hardware, OnChange, OnProgress
from workers.hypervisor.simulated_calls import (
    RunningCall,
    Wait,
    lost,
    raise_unless_done,
    wait,
    wait_with_progress,
)
from workers.hypervisor.simulated_disks import disk_image, disk_of, made_disk
from workers.hypervisor.simulated_state import (
    read_domains,
    read_images,
    read_machine_id,
    write_domain,
    write_images,
)

SPAWN, DESTROY, POWER_ON, POWER_OFF = "spawn", "destroy", "power_on", "power_off"
PAUSE, SUSPEND, REBOOT = "pause", "suspend", "reboot"
RESHAPE, REBUILD, SNAPSHOT = "reshape", "rebuild", "snapshot"
CHECK_TARGET, CHECK_SOURCE, ACTIVATE = "check_target", "check_source", "activate"
COPY, ABORT_COPY, CACHE_IMAGES = "copy", "abort_copy", "cache_images"
AGE_OUT = "age_out"
OFFER_DISK, TAKE_DISK, CHECK_DISK = "offer_disk", "take_disk", "check_disk"

_Change: TypeAlias = Callable[[GuestDomain | None], GuestDomain | None]


class SimulatedHypervisor:
    """Keeps domains in memory, and in `directory` when one is given, beyond any agent's death.

    With a directory the state also survives the process (a killed process, not a power cut:
    nothing is synced). `calls` and `effects` count per (instance, verb) since opening: an
    effect is a call that changed something. `effects.jsonl` in the directory lists every
    effect ever, so that a test can tell "once" from "twice" across processes.
    """

    def __init__(
        self,
        hardware: Hardware,
        directory: Path | None = None,
        injected_faults: InjectedFaults = always_done,
    ) -> None:
        self._hardware = hardware
        self._directory = directory
        self._injected_faults = injected_faults
        self._lock = Lock()
        self._running: dict[InstanceId, list[RunningCall]] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._effects: Counter[tuple[str, str]] = Counter()
        self._domains: dict[InstanceId, GuestDomain] = {}
        self._images: frozenset[str] = frozenset()
        self._images_used_at: dict[str, float] = {}
        self._aged_at = 0.0
        self._on_change: OnChange = lambda _: None
        self.machine_id = str(uuid.uuid4())
        if directory is not None:
            self.machine_id = read_machine_id(directory, self.machine_id)
            self._domains = read_domains(directory)
            self._images = read_images(directory)

    @property
    def name(self) -> str:
        """The kind of hypervisor, as `--hypervisor` names it."""
        return "simulated"

    def hardware(self) -> Hardware:
        """Return the hardware it was given."""
        return self._hardware

    def watch(self, on_change: OnChange) -> None:
        """Tell of every guest whose power changes from now on."""
        self._on_change = on_change

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every guest, in the order in which they came."""
        with self._lock:
            return tuple(self._domains.values())

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when there is no such guest."""
        with self._lock:
            return self._domains.get(instance_id)

    def calls(self, instance_id: str, verb: str) -> int:
        """Return how often a verb was called for an instance since opening."""
        with self._lock:
            return self._calls[instance_id, verb]

    def effects(self, instance_id: str, verb: str) -> int:
        """Return how often such a call changed something since opening."""
        with self._lock:
            return self._effects[instance_id, verb]

    def spawn(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Define a guest with the power of its spec; `Broken` when it exists with another spec."""
        wanted = defined(instance_id, spec)

        def spawned(before: GuestDomain | None) -> GuestDomain:
            if before is not None and before.spec != wanted.spec:
                message = f"instance {instance_id} exists here with another spec"
                raise Broken("domain_differs", message, instance_id=instance_id)
            disk = made_disk(spec) if before is None else before.disk
            if disk is None and wanted.power == "running":
                raise awaits_disk(instance_id)
            return replace(wanted, disk=disk)

        self._perform(instance_id, SPAWN, spawned)

    def reshape(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Give a guest another definition and power; `HostRefused` when there is none."""

        def reshaped(before: GuestDomain | None) -> GuestDomain:
            return replace(
                defined(instance_id, spec),
                disk=existing(instance_id, before).disk,
            )

        self._perform(instance_id, RESHAPE, reshaped)

    def rebuild(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Make a guest anew from its image, whatever was there under its id."""
        made = replace(defined(instance_id, spec), disk=made_disk(spec))
        self._perform(instance_id, REBUILD, lambda _: made)

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest."""
        self._perform(instance_id, DESTROY, lambda _: None)

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest; `HostRefused` when there is none."""
        self._perform(
            instance_id,
            POWER_ON,
            lambda before: powered(instance_id, with_disk(instance_id, before), "running"),
        )

    def power_off(self, instance_id: InstanceId) -> None:
        """Stop a guest, keeping it; `HostRefused` when there is none."""
        self._perform(
            instance_id,
            POWER_OFF,
            lambda before: powered(instance_id, before, "shutdown"),
        )

    def pause(self, instance_id: InstanceId) -> None:
        """Let a guest stand still; `HostRefused` when none runs."""
        self._perform(instance_id, PAUSE, lambda before: held(instance_id, before, "paused"))

    def suspend(self, instance_id: InstanceId) -> None:
        """Save a guest's memory and stop it; `HostRefused` when none runs."""
        self._perform(instance_id, SUSPEND, lambda before: held(instance_id, before, "suspended"))

    def reboot(self, instance_id: InstanceId, *, hard: bool) -> None:
        """Start a guest anew, which a simulation only checks that it can."""
        self._perform(instance_id, REBOOT, lambda before: rebooted(instance_id, before, hard=hard))

    def crash(self, instance_id: InstanceId) -> None:
        """Stop a guest as when its process dies: nobody asked for it."""
        with self._lock:
            domain = replace(self._domains[instance_id], power="crashed")
            if self._directory is not None:
                write_domain(self._directory, instance_id, "crash", domain)
            self._domains[instance_id] = domain
        self._on_change(instance_id)

    def write_disk(self, instance_id: InstanceId, text: str) -> None:
        """Write on a root disk, as the guest itself does."""
        with self._lock:
            domain = replace(self._domains[instance_id], disk=text)
            if self._directory is not None:
                write_domain(self._directory, instance_id, "write_disk", domain)
            self._domains[instance_id] = domain

    def snapshot(self, instance_id: InstanceId) -> DiskImage:
        """Save what is on the disk; `HostRefused` when there is no guest."""
        self._perform(instance_id, SNAPSHOT, lambda before: with_disk(instance_id, before))
        return self._disk(instance_id)

    def offer_disk(self, instance_id: InstanceId) -> DiskImage:
        """Let another host take the disk; `HostRefused` while the guest runs."""
        self._perform(
            instance_id,
            OFFER_DISK,
            lambda before: with_disk(instance_id, must_be_off(instance_id, before)),
        )
        return self._disk(instance_id)

    def take_disk(self, instance_id: InstanceId, disk: DiskImage) -> str:
        """Have the disk that another host offers; `HostRefused` when it came damaged."""
        self._perform(
            instance_id,
            TAKE_DISK,
            lambda before: replace(must_be_off(instance_id, before), disk=disk_of(disk)),
        )
        return self._disk(instance_id).checksum

    def check_disk(self, instance_id: InstanceId) -> None:
        """Change nothing; `HostRefused` when there is no guest, or its disk is still awaited."""
        self._perform(instance_id, CHECK_DISK, lambda before: with_disk(instance_id, before))

    def check_target(self, instance_id: InstanceId, _: GuestDefinition) -> None:
        """Change nothing: a simulation can run any guest."""
        self._perform(instance_id, CHECK_TARGET, lambda before: before)

    def check_source(self, instance_id: InstanceId) -> None:
        """Change nothing; `HostRefused` when there is no guest, or none that runs."""
        self._perform(instance_id, CHECK_SOURCE, lambda before: must_run(instance_id, before))

    def activate(self, instance_id: InstanceId, disk: DiskImage | None = None) -> None:
        """Let a waiting guest run; `HostRefused` when there is none, or one that is stopped."""
        self._perform(instance_id, ACTIVATE, lambda before: activated(instance_id, before, disk))

    def destination(self, _: InstanceId) -> dict[str, Any]:
        """Nothing: simulations find each other by what travels in messages."""
        return {}

    def copy(
        self, instance_id: InstanceId, target: CopyTarget, on_progress: OnProgress
    ) -> DiskImage:
        """Take the time of a copy and report its progress; in the end the guest is stopped here.

        Nothing travels but what is on the disk, in the answer: the guest that waits on the target
        is another simulation's.
        """

        def copied(before: GuestDomain | None) -> GuestDomain:
            there = existing(instance_id, before)
            if there.copied_to == target.target:
                return there
            there = must_run(instance_id, there)
            return replace(there, power="shutdown", copied_to=target.target)

        def copy_delay(call: RunningCall, fault: InjectedFault) -> None:
            before = self.domain(instance_id)
            if copied(before) != before:
                wait_with_progress(call, fault, on_progress)

        self._perform(instance_id, COPY, copied, copy_delay)
        return self._disk(instance_id)

    def abort_copy(self, instance_id: InstanceId) -> None:
        """Have a guest run that was being copied, or had been; `HostRefused` when there is none."""
        self._perform(
            instance_id,
            ABORT_COPY,
            lambda before: powered(instance_id, before, "running"),
        )

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        with self._lock:
            return self._images

    def cache_image(self, owner: InstanceId, image: ImageFile) -> None:
        """Have an image in the cache; nothing is kept of one that comes damaged."""
        self._call(owner, CACHE_IMAGES, lambda: self._cache(owner, image.id), wait)

    def console(self, instance_id: InstanceId, offset: int | None, most_bytes: int) -> ConsolePart:
        """Return what a simulated guest says: what it is called, and what it is doing."""
        there = with_disk(instance_id, self.domain(instance_id))
        text = f"{there.spec.name if there.spec else instance_id} is {there.power}\n"
        start = max(0, len(text) - most_bytes) if offset is None else min(offset, len(text))
        part = text[start : start + most_bytes]
        return ConsolePart(text=part, next_offset=start + len(part))

    def age_out(self, now: float, unused_s: float) -> tuple[str, ...]:
        """Remove the cached images that no guest has had for so long, as calls of this tell."""
        with self._lock:
            had = {guest.spec.image_id for guest in self._domains.values() if guest.spec}
            used_at = self._images_used_at
            since = self._aged_at or now
            self._images_used_at = {
                image: now if image in had else used_at.get(image, since) for image in self._images
            }
            self._aged_at = now
            gone = tuple(
                sorted(
                    image
                    for image, at in self._images_used_at.items()
                    if image not in had and now - at >= unused_s
                )
            )
            if gone:
                after = self._images - set(gone)
                if self._directory is not None:
                    write_images(self._directory, InstanceId(AGE_OUT), AGE_OUT, after)
                self._images = after
            return gone

    def abort(self, instance_id: InstanceId) -> None:
        """End the calls that run for this instance: `HostRefused`, nothing changed."""
        with self._lock:
            for call in self._running.get(instance_id, ()):
                call.aborted.set()

    def _disk(self, instance_id: InstanceId) -> DiskImage:
        return disk_image(instance_id, with_disk(instance_id, self.domain(instance_id)).disk or "")

    def _perform(
        self, instance_id: InstanceId, verb: str, change: _Change, delay: Wait | None = None
    ) -> None:
        act = partial(self._change, instance_id, verb, change)
        self._call(instance_id, verb, act, delay or wait)

    def _call(
        self, instance_id: InstanceId, verb: str, act: Callable[[], None], delay: Wait
    ) -> None:
        running = RunningCall()
        with self._lock:
            nth = self._calls[instance_id, verb]
            self._calls[instance_id, verb] += 1
            self._running.setdefault(instance_id, []).append(running)
        try:
            fault = self._injected_faults(Call(instance_id, verb, nth))
            delay(running, fault)
            with self._lock:
                # Checked under the lock: an abort either comes first or comes too late.
                if running.aborted.is_set():
                    message = f"{verb} of instance {instance_id} was aborted"
                    raise HostRefused("aborted", message, instance_id=instance_id)
                raise_unless_done(instance_id, verb, fault)
                act()
        finally:
            self._forget(instance_id, running)
        self._on_change(instance_id)
        if fault.ending == "lost_after":
            raise lost(instance_id, verb)

    def _change(self, instance_id: InstanceId, verb: str, change: _Change) -> None:
        before = self._domains.get(instance_id)
        after = change(before)
        if after == before:
            return
        if self._directory is not None:
            write_domain(self._directory, instance_id, verb, after)
        if after is None:
            del self._domains[instance_id]
        else:
            self._domains[instance_id] = after
        self._effects[instance_id, verb] += 1

    def _cache(self, owner: InstanceId, image_id: str) -> None:
        after = self._images | {image_id}
        if after == self._images:
            return
        if self._directory is not None:
            write_images(self._directory, owner, CACHE_IMAGES, after)
        self._images = after
        self._effects[owner, CACHE_IMAGES] += 1

    def _forget(self, instance_id: InstanceId, running: RunningCall) -> None:
        with self._lock:
            self._running[instance_id].remove(running)
            if not self._running[instance_id]:
                del self._running[instance_id]
