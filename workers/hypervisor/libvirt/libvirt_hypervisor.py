"""The hypervisor port on libvirt: guests are its domains, and it is asked what they are."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import libvirt
from defusedxml.ElementTree import fromstring

from models.errors import Broken, ConductorError, HostRefused, Rejected
from models.ids import InstanceId
from models.messages.guests.console_parts import ConsolePart
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage, RootDisk
from workers.hypervisor.libvirt.domain_control import (
    INACTIVE_XML,
    MIGRATABLE_XML,
    DomainControl,
    firmware_of,
    must_run,
    still_runs,
)
from workers.hypervisor.libvirt.domain_xml.reading import moved_xml
from workers.hypervisor.libvirt.domain_xml.writing import console_log, domain_xml
from workers.hypervisor.libvirt.guest_disks import GuestDisks
from workers.hypervisor.libvirt.live_copy import Destination, migrate
from workers.hypervisor.libvirt.running_work import RunningWork
from workers.hypervisor.ports import GuestDomain, Hardware, OnChange, OnProgress, Power
from workers.images.file_work import FileWork

SHUTDOWN_WAIT_S: Final = 30.0
"""How long a guest may take to end by itself before its power is cut."""
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class LibvirtHost:
    """How other hosts reach this one.

    `migration_uri` is the libvirt of this host as other hosts open it, `migration_address` where
    the memory of their guests is sent.
    """

    migration_uri: str
    migration_address: str


@dataclass(eq=False)
class LibvirtHypervisor:
    """Runs guests on one libvirt daemon; what it knows is in libvirt and on the disks."""

    control: DomainControl
    host: LibvirtHost
    disks: GuestDisks
    read_hardware: Callable[[], Hardware]
    work: RunningWork = field(default_factory=RunningWork)

    name = "libvirt"

    @property
    def machine_id(self) -> str:
        """The UUID that libvirt gives its host."""
        text = self.control.connection.call("capabilities", lambda found: found.getCapabilities())
        return str(fromstring(text).findtext("host/uuid"))

    def hardware(self) -> Hardware:
        """Return what the host is made of, as it is now."""
        return self.read_hardware()

    def watch(self, on_change: OnChange) -> None:
        """Tell of every domain that starts or stops."""
        self.control.connection.watch(lambda uuid: on_change(InstanceId(uuid)))

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every domain, those of others included."""
        return self.control.domains()

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when the host has no such guest."""
        return self.control.domain(instance_id)

    def spawn(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Define a guest with the power of its spec; what fails leaves nothing behind."""
        wanted = _stored(spec)
        there = self.control.domain(instance_id)
        with self.work.of(instance_id) as work:
            if there is not None:
                _must_equal(instance_id, self.control.definition(instance_id), wanted)
                self.disks.make(instance_id, spec, work)
            else:
                self._make(instance_id, spec, wanted, work)
            if spec.power == "running":
                self.control.start(instance_id)

    def reshape(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Give a guest another definition and power; its disks stay, or grow.

        One with disks and without a domain was between two definitions when its worker died.
        """
        if self.disks.is_missing(instance_id):
            self.control.existing(instance_id)
        with self.work.of(instance_id) as work:
            there = self.control.domain(instance_id)
            if there is not None:
                self.control.stop(instance_id)
            self.disks.withdraw(instance_id)
            self.disks.resize(instance_id, spec, work)
            if there is not None and self._has_other_firmware(instance_id, spec):
                self.control.forget(instance_id)
            self._define(instance_id, _stored(spec), waiting=spec.power == "nostate")
            if spec.power == "running":
                self.control.start(instance_id)

    def _has_other_firmware(self, instance_id: InstanceId, spec: GuestDefinition) -> bool:
        return firmware_of(self.control.definition(instance_id)) != firmware_of(spec)

    def rebuild(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Make a guest anew from its image."""
        with self.work.of(instance_id) as work:
            if self.control.domain(instance_id) is not None:
                self.control.stop(instance_id)
            self.disks.remake_root(instance_id, spec, work)
            self.disks.make(instance_id, spec, work)
            if self.control.domain(instance_id) is not None:
                self.control.forget(instance_id)
            self._define(instance_id, _stored(spec), waiting=spec.power == "nostate")
            if spec.power == "running":
                self.control.start(instance_id)

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest with its disks; one that is not ours is left alone."""
        if self.control.domain(instance_id) is not None:
            self.control.definition(instance_id)  # proves that it is ours
            self.control.stop(instance_id)
            flags = (
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )
            self.control.act(instance_id, "undefine", lambda domain: domain.undefineFlags(flags))
        self.disks.remove(instance_id)
        shutil.rmtree(console_log(self.control.context, instance_id).parent, ignore_errors=True)

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest, or let it go on."""
        self.control.existing(instance_id)
        self._refuse_missing_disk(instance_id)
        self.disks.withdraw(instance_id)
        self.control.start(instance_id)

    def power_off(self, instance_id: InstanceId) -> None:
        """Ask a guest to end, and cut its power where it does not."""
        there = self.control.existing(instance_id)
        if there.power == "running":
            with self.work.of(instance_id) as work:
                self._shut_down(instance_id, work)
        self.control.stop(instance_id)

    def pause(self, instance_id: InstanceId) -> None:
        """Let a guest stand still, in memory."""
        if self._runs_or_is(instance_id, "paused"):
            self.control.act(instance_id, "pause", lambda domain: domain.suspend())

    def suspend(self, instance_id: InstanceId) -> None:
        """Save a guest's memory on the host's disk and stop it."""
        if self._runs_or_is(instance_id, "suspended"):
            self.control.act(instance_id, "suspend", lambda domain: domain.managedSave(0))

    def reboot(self, instance_id: InstanceId, *, hard: bool) -> None:
        """Start a guest anew, asked to end by itself first unless `hard`."""
        there = self.control.existing(instance_id)
        if not hard:
            must_run(instance_id, there)
            with self.work.of(instance_id) as work:
                self._shut_down(instance_id, work)
        self.control.stop(instance_id)
        self.control.start(instance_id)

    def snapshot(self, instance_id: InstanceId) -> DiskImage:
        """Save the root disk of a guest that does not run as an image."""
        self._must_be_off_with_disk(instance_id)
        with self.work.of(instance_id) as work:
            return self.disks.snapshot(instance_id, work)

    def offer_disk(self, instance_id: InstanceId) -> DiskImage:
        """Let another host take the root disk."""
        self._must_be_off_with_disk(instance_id)
        with self.work.of(instance_id) as work:
            return self.disks.offer(instance_id, work)

    def take_disk(self, instance_id: InstanceId, disk: DiskImage) -> str:
        """Have the root disk that another host offers."""
        self._must_be_off(instance_id)
        wanted = self.control.definition(instance_id)
        with self.work.of(instance_id) as work:
            checksum = self.disks.take(instance_id, wanted, disk, work)
        # What came may be in another format than what was expected.
        self.control.define(instance_id, wanted, self.disks.files(instance_id), waiting=False)
        return checksum

    def check_disk(self, instance_id: InstanceId) -> None:
        """Change nothing; refuse where the disk is still awaited."""
        self.control.existing(instance_id)
        self._refuse_missing_disk(instance_id)

    def check_target(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Change nothing; refuse what libvirt would not define."""
        xml = domain_xml(instance_id, spec, self.control.context, ())

        def check(connection: Any) -> None:
            connection.domainXMLToNative("qemu-argv", xml)

        self.control.connection.call(f"check {instance_id}", check)

    def check_source(self, instance_id: InstanceId) -> None:
        """Change nothing; refuse where there is no guest, or none that runs."""
        must_run(instance_id, self.control.existing(instance_id))

    def destination(self, instance_id: InstanceId) -> dict[str, Any]:
        """Return how the source reaches this host, and the guest as it is to be here."""
        wanted = self.control.definition(instance_id)
        files = self.disks.files(instance_id)
        return {
            "uri": self.host.migration_uri,
            "address": self.host.migration_address,
            "xml": domain_xml(instance_id, wanted, self.control.context, files),
        }

    def copy(
        self, instance_id: InstanceId, target: CopyTarget, on_progress: OnProgress
    ) -> DiskImage:
        """Copy a running guest, memory and disks, to the host where it waits."""
        there = self.control.existing(instance_id)
        if there.copied_to == target.target:
            return _copied_disk(instance_id)
        must_run(instance_id, there)
        with self.work.of(instance_id) as work:
            self.control.note_copy(instance_id, target.target)
            xml = self.control.act(instance_id, "copy", lambda d: d.XMLDesc(MIGRATABLE_XML))
            kept = self.control.act(
                instance_id, "copy", lambda d: d.XMLDesc(INACTIVE_XML | MIGRATABLE_XML)
            )
            there_xml = str(target.destination["xml"])
            destination = Destination(
                uri=str(target.destination["uri"]),
                address=str(target.destination["address"]),
                xml=moved_xml(xml, there_xml),
                persistent_xml=moved_xml(kept, there_xml),
                copies_disks=True,
            )
            try:
                self.control.act(
                    instance_id,
                    "copy",
                    lambda d: migrate(d, destination, target.policy, work.aborted, on_progress),
                )
            except ConductorError as error:
                raise self._failed_copy(instance_id, error) from error
        return _copied_disk(instance_id)

    def activate(self, instance_id: InstanceId, disk: DiskImage | None = None) -> None:  # noqa: ARG002  # the disk came with the memory
        """Let a guest run whose memory and disks have come."""
        there = self.control.existing(instance_id)
        if there.power == "running":
            return
        if there.power == "paused":
            self.control.act(instance_id, "activate", lambda domain: domain.resume())
            return
        message = f"instance {instance_id} is {there.power}: its memory has not come"
        raise HostRefused("not_waiting", message, instance_id=instance_id)

    def abort(self, instance_id: InstanceId) -> None:
        """Make the calls that run for this instance end now."""
        self.work.abort(instance_id)

    def abort_copy(self, instance_id: InstanceId) -> None:
        """Have a guest run here that was being copied; refuse where it has left already."""
        there = self.control.existing(instance_id)
        self.abort(instance_id)
        if there.copied_to is not None:
            message = f"instance {instance_id} runs on {there.copied_to}: here it would run twice"
            raise HostRefused("guest_left", message, instance_id=instance_id)
        with suppress(HostRefused):
            self.control.act(instance_id, "abort the copy", lambda domain: domain.abortJob())
        self.control.start(instance_id)

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        return self.disks.cached()

    def cache_image(self, owner: InstanceId, image: ImageFile) -> None:
        """Have an image in the cache."""
        with self.work.of(owner) as work:
            self.disks.cache(image, work)

    def console(self, instance_id: InstanceId, offset: int | None, most_bytes: int) -> ConsolePart:
        """Return what a guest has written to its first serial port."""
        self.control.existing(instance_id)
        return self.control.console(instance_id, offset, most_bytes)

    def age_out(self, now: float, unused_s: float) -> tuple[str, ...]:  # noqa: ARG002 - files have times
        """Remove the cached images that no disk has had for so long; consoles are bounded too."""
        self.control.bound_consoles()
        return self.disks.age_out(unused_s)

    def _make(
        self,
        instance_id: InstanceId,
        spec: GuestDefinition,
        wanted: GuestDefinition,
        work: FileWork,
    ) -> None:
        try:
            self.disks.make(instance_id, spec, work)
            self._define(instance_id, wanted, waiting=spec.power == "nostate")
        except (HostRefused, Rejected):
            self.disks.remove(instance_id)
            raise

    def _define(self, instance_id: InstanceId, wanted: GuestDefinition, *, waiting: bool) -> None:
        self.control.define(instance_id, wanted, self.disks.files(instance_id), waiting=waiting)

    def _shut_down(self, instance_id: InstanceId, work: FileWork) -> None:
        """Press the power button and wait; a guest that has ended meanwhile is no error."""
        with suppress(HostRefused):
            self.control.act(instance_id, "shutdown", lambda domain: domain.shutdown())
        until = time.monotonic() + SHUTDOWN_WAIT_S
        while time.monotonic() < until and self.control.is_active(instance_id):
            work.pause(_POLL_S)

    def _runs_or_is(self, instance_id: InstanceId, power: Power) -> bool:
        """Say whether there is something to do; refuse where the guest does not run."""
        there = self.control.existing(instance_id)
        if there.power == power:
            return False
        must_run(instance_id, there)
        return True

    def _must_be_off(self, instance_id: InstanceId) -> None:
        if self.control.existing(instance_id).power in ("running", "paused"):
            raise still_runs(instance_id)

    def _must_be_off_with_disk(self, instance_id: InstanceId) -> None:
        self._must_be_off(instance_id)
        self._refuse_missing_disk(instance_id)

    def _refuse_missing_disk(self, instance_id: InstanceId) -> None:
        if self.disks.is_missing(instance_id):
            message = f"the disk of instance {instance_id} has not come yet"
            raise HostRefused("disk_awaited", message, instance_id=instance_id)

    def _failed_copy(self, instance_id: InstanceId, error: ConductorError) -> ConductorError:
        """Return the error of a copy that failed: where the guest runs, nothing has changed."""
        there = self.control.domain(instance_id)
        if there is None or there.power not in ("running", "paused"):
            return error
        if there.power == "paused":
            self.control.start(instance_id)
        if isinstance(error, HostRefused):
            return error
        return HostRefused("copy_failed", f"{error.message}; the guest runs on here")


def _stored(spec: GuestDefinition) -> GuestDefinition:
    """Return the definition as a domain carries it: power and origin of the disk are not its."""
    own = {"power": "running", "root_disk": RootDisk()}
    return spec.model_copy(update=own)


def _must_equal(instance_id: InstanceId, found: GuestDefinition, wanted: GuestDefinition) -> None:
    if found.to_json() != wanted.to_json():
        message = f"instance {instance_id} exists here with another definition"
        raise Broken("domain_differs", message, instance_id=instance_id)


def _copied_disk(instance_id: InstanceId) -> DiskImage:
    """Return what stands for disks that travelled with the memory: libvirt has verified them."""
    return DiskImage(id=str(instance_id), checksum="copied-by-libvirt")
