"""The hypervisor port on libvirt: guests are its domains, and it is asked what they are."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Any, Final

import libvirt
from defusedxml.ElementTree import fromstring

from models.errors import Broken, ConductorError, HostRefused, Rejected
from models.ids import InstanceId
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage, RootDisk
from workers.hypervisor.libvirt.connection import LibvirtConnection, domain_of
from workers.hypervisor.libvirt.domain_states import guest_of_domain, power_of
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.domain_xml.reading import definition_in, is_ours, moved_xml
from workers.hypervisor.libvirt.domain_xml.writing import COPY_NAMESPACE, console_log, domain_xml
from workers.hypervisor.libvirt.guest_disks import GuestDisks
from workers.hypervisor.libvirt.live_copy import Destination, migrate
from workers.hypervisor.ports import GuestDomain, Hardware, OnChange, OnProgress, Power
from workers.images.file_work import FileWork

SHUTDOWN_WAIT_S: Final = 30.0
"""How long a guest may take to end by itself before its power is cut."""
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class LibvirtHost:
    """What an operator decides of a host: how other hosts reach it, and how guests run on it.

    `migration_uri` is the libvirt of this host as other hosts open it, `migration_address` where
    the memory of their guests is sent.
    """

    context: HostContext
    migration_uri: str
    migration_address: str


@dataclass(eq=False)
class LibvirtHypervisor:
    """Runs guests on one libvirt daemon; what it knows is in libvirt and on the disks."""

    connection: LibvirtConnection
    host: LibvirtHost
    disks: GuestDisks
    read_hardware: Callable[[], Hardware]
    _running: dict[InstanceId, list[Event]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    name = "libvirt"

    @property
    def machine_id(self) -> str:
        """The UUID that libvirt gives its host."""
        text = self.connection.call("capabilities", lambda found: found.getCapabilities())
        return str(fromstring(text).findtext("host/uuid"))

    def hardware(self) -> Hardware:
        """Return what the host is made of, as it is now."""
        return self.read_hardware()

    def watch(self, on_change: OnChange) -> None:
        """Tell of every domain that starts or stops."""
        self.connection.watch(lambda uuid: on_change(InstanceId(uuid)))

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every domain; one that goes while it is read is left out."""

        def listed(connection: Any) -> tuple[GuestDomain, ...]:
            found = []
            for domain in connection.listAllDomains():
                with _gone_is_none():
                    found.append(guest_of_domain(domain))
            return tuple(found)

        return self.connection.call("list", listed)

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when the host has no such guest."""

        def look(connection: Any) -> GuestDomain | None:
            found: list[GuestDomain] = []
            with _gone_is_none():
                domain = domain_of(connection, instance_id)
                found += [guest_of_domain(domain)] if domain is not None else []
            return found[0] if found else None

        return self.connection.call("lookup", look)

    def spawn(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Define a guest with the power of its spec; what fails leaves nothing behind."""
        wanted = _stored(spec)
        there = self.domain(instance_id)
        with self._work(instance_id) as work:
            if there is not None:
                _must_equal(instance_id, self._definition(instance_id), wanted)
                self.disks.make(instance_id, spec, work)
            else:
                self._make(instance_id, spec, wanted, work)
            if spec.power == "running":
                self._start(instance_id)

    def reshape(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Give a guest another definition and power; its disks stay, or grow."""
        self._existing(instance_id)
        with self._work(instance_id) as work:
            self._stop_now(instance_id)
            self.disks.resize(instance_id, spec, work)
            self._define(instance_id, _stored(spec), waiting=spec.power == "nostate")
            if spec.power == "running":
                self._start(instance_id)

    def rebuild(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Make a guest anew from its image."""
        with self._work(instance_id) as work:
            if self.domain(instance_id) is not None:
                self._stop_now(instance_id)
            self.disks.remake_root(instance_id, spec, work)
            self.disks.make(instance_id, spec, work)
            self._define(instance_id, _stored(spec), waiting=spec.power == "nostate")
            if spec.power == "running":
                self._start(instance_id)

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest with its disks; one that is not ours is left alone."""
        if self.domain(instance_id) is not None:
            self._definition(instance_id)  # proves that it is ours
            self._stop_now(instance_id)
            flags = (
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )
            self._act(instance_id, "undefine", lambda domain: domain.undefineFlags(flags))
        self.disks.remove(instance_id)
        shutil.rmtree(console_log(self.host.context, instance_id).parent, ignore_errors=True)

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest, or let it go on."""
        self._existing(instance_id)
        self._refuse_missing_disk(instance_id)
        self._start(instance_id)

    def power_off(self, instance_id: InstanceId) -> None:
        """Ask a guest to end, and cut its power where it does not."""
        there = self._existing(instance_id)
        if there.power == "running":
            with self._work(instance_id) as work:
                self._shut_down(instance_id, work)
        self._stop_now(instance_id)

    def pause(self, instance_id: InstanceId) -> None:
        """Let a guest stand still, in memory."""
        if self._runs_or_is(instance_id, "paused"):
            self._act(instance_id, "pause", lambda domain: domain.suspend())

    def suspend(self, instance_id: InstanceId) -> None:
        """Save a guest's memory on the host's disk and stop it."""
        if self._runs_or_is(instance_id, "suspended"):
            self._act(instance_id, "suspend", lambda domain: domain.managedSave(0))

    def reboot(self, instance_id: InstanceId, *, hard: bool) -> None:
        """Start a guest anew, asked to end by itself first unless `hard`."""
        there = self._existing(instance_id)
        if not hard:
            _must_run(instance_id, there)
            with self._work(instance_id) as work:
                self._shut_down(instance_id, work)
        self._stop_now(instance_id)
        self._start(instance_id)

    def snapshot(self, instance_id: InstanceId) -> DiskImage:
        """Save the root disk of a guest that does not run as an image."""
        self._must_be_off(instance_id)
        with self._work(instance_id) as work:
            return self.disks.snapshot(instance_id, work)

    def offer_disk(self, instance_id: InstanceId) -> DiskImage:
        """Let another host take the root disk."""
        self._must_be_off(instance_id)
        with self._work(instance_id) as work:
            return self.disks.offer(instance_id, work)

    def take_disk(self, instance_id: InstanceId, disk: DiskImage) -> str:
        """Have the root disk that another host offers."""
        there = self._existing(instance_id)
        if there.power == "running":
            raise _still_runs(instance_id)
        wanted = self._definition(instance_id)
        with self._work(instance_id) as work:
            checksum = self.disks.take(instance_id, wanted, disk, work)
        # What came may be in another format than what was expected.
        self._define(instance_id, wanted, waiting=False)
        return checksum

    def check_disk(self, instance_id: InstanceId) -> None:
        """Change nothing; refuse where the disk is still awaited."""
        self._existing(instance_id)
        self._refuse_missing_disk(instance_id)

    def check_target(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Change nothing; refuse what libvirt would not define."""
        xml = domain_xml(instance_id, spec, self.host.context, ())

        def check(connection: Any) -> None:
            connection.domainXMLToNative("qemu-argv", xml)

        self.connection.call(f"check {instance_id}", check)

    def check_source(self, instance_id: InstanceId) -> None:
        """Change nothing; refuse where there is no guest, or none that runs."""
        _must_run(instance_id, self._existing(instance_id))

    def destination(self, instance_id: InstanceId) -> dict[str, Any]:
        """Return how the source reaches this host, and the guest as it is to be here."""
        wanted = self._definition(instance_id)
        files = self.disks.files(instance_id)
        return {
            "uri": self.host.migration_uri,
            "address": self.host.migration_address,
            "xml": domain_xml(instance_id, wanted, self.host.context, files),
        }

    def copy(
        self, instance_id: InstanceId, target: CopyTarget, on_progress: OnProgress
    ) -> DiskImage:
        """Copy a running guest, memory and disks, to the host where it waits."""
        there = self._existing(instance_id)
        if there.copied_to == target.target:
            return _copied_disk(instance_id)
        _must_run(instance_id, there)
        with self._work(instance_id) as work:
            self._note_copy(instance_id, target.target)
            xml = self._act(instance_id, "copy", lambda d: d.XMLDesc(_MIGRATABLE))
            kept = self._act(instance_id, "copy", lambda d: d.XMLDesc(_INACTIVE | _MIGRATABLE))
            there_xml = str(target.destination["xml"])
            destination = Destination(
                uri=str(target.destination["uri"]),
                address=str(target.destination["address"]),
                xml=moved_xml(xml, there_xml),
                persistent_xml=moved_xml(kept, there_xml),
                copies_disks=True,
            )
            try:
                self._act(
                    instance_id,
                    "copy",
                    lambda d: migrate(d, destination, target.policy, work.aborted, on_progress),
                )
            except ConductorError as error:
                raise self._failed_copy(instance_id, error) from error
        return _copied_disk(instance_id)

    def activate(self, instance_id: InstanceId, disk: DiskImage | None = None) -> None:  # noqa: ARG002  # the disk came with the memory
        """Let a guest run whose memory and disks have come."""
        there = self._existing(instance_id)
        if there.power == "running":
            return
        if there.power == "paused":
            self._act(instance_id, "activate", lambda domain: domain.resume())
            return
        message = f"instance {instance_id} is {there.power}: its memory has not come"
        raise HostRefused("not_waiting", message, instance_id=instance_id)

    def abort_copy(self, instance_id: InstanceId) -> None:
        """Have a guest run here that was being copied; refuse where it has left already."""
        there = self._existing(instance_id)
        self.abort(instance_id)
        if there.copied_to is not None:
            message = f"instance {instance_id} runs on {there.copied_to}: here it would run twice"
            raise HostRefused("guest_left", message, instance_id=instance_id)
        with suppress(HostRefused):
            self._act(instance_id, "abort the copy", lambda domain: domain.abortJob())
        self._start(instance_id)

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        return self.disks.cached()

    def cache_image(self, owner: InstanceId, image: ImageFile) -> None:
        """Have an image in the cache."""
        with self._work(owner) as work:
            self.disks.cache(image, work)

    def abort(self, instance_id: InstanceId) -> None:
        """Make the calls that run for this instance end now."""
        with self._lock:
            for aborted in self._running.get(instance_id, ()):
                aborted.set()

    @contextmanager
    def _work(self, instance_id: InstanceId) -> Iterator[FileWork]:
        work = FileWork()
        with self._lock:
            self._running.setdefault(instance_id, []).append(work.aborted)
        try:
            yield work
        finally:
            with self._lock:
                self._running[instance_id].remove(work.aborted)
                if not self._running[instance_id]:
                    del self._running[instance_id]

    def _act(self, instance_id: InstanceId, what: str, act: Callable[[Any], Any]) -> Any:
        """Do something with a domain that has to be there."""

        def on(connection: Any) -> Any:
            domain = domain_of(connection, instance_id)
            if domain is None:
                raise _missing(instance_id)
            return act(domain)

        return self.connection.call(f"{what} of {instance_id}", on)

    def _existing(self, instance_id: InstanceId) -> GuestDomain:
        there = self.domain(instance_id)
        if there is None:
            raise _missing(instance_id)
        return there

    def _definition(self, instance_id: InstanceId) -> GuestDefinition:
        """Return the definition that a domain carries; refuse one that is none of ours."""
        xml = self._act(instance_id, "read", lambda domain: domain.XMLDesc(_INACTIVE))
        if not is_ours(xml):
            message = f"the domain {instance_id} was made by somebody else: it is left alone"
            raise HostRefused("domain_foreign", message, instance_id=instance_id)
        return definition_in(xml)

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
        files = self.disks.files(instance_id)
        xml = domain_xml(instance_id, wanted, self.host.context, files, waiting=waiting)
        console_log(self.host.context, instance_id).parent.mkdir(parents=True, exist_ok=True)
        flags = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
        self.connection.call(
            f"define {instance_id}", lambda connection: connection.defineXMLFlags(xml, flags)
        )

    def _start(self, instance_id: InstanceId) -> None:
        def start(domain: Any) -> None:
            power = power_of(domain, domain.XMLDesc(0))
            if power == "paused":
                domain.resume()
            elif power not in ("running", "nostate"):
                domain.create()

        self._act(instance_id, "start", start)

    def _stop_now(self, instance_id: InstanceId) -> None:
        def stop(domain: Any) -> None:
            if domain.isActive():
                with _already(libvirt.VIR_ERR_OPERATION_INVALID):
                    domain.destroy()
            if domain.hasManagedSaveImage():
                domain.managedSaveRemove()

        self._act(instance_id, "stop", stop)

    def _shut_down(self, instance_id: InstanceId, work: FileWork) -> None:
        """Press the power button and wait; a guest that has ended meanwhile is no error."""
        with suppress(HostRefused):
            self._act(instance_id, "shutdown", lambda domain: domain.shutdown())
        until = time.monotonic() + SHUTDOWN_WAIT_S
        while time.monotonic() < until and self._is_active(instance_id):
            work.pause(_POLL_S)

    def _is_active(self, instance_id: InstanceId) -> bool:
        return bool(self._act(instance_id, "look", lambda domain: domain.isActive()))

    def _runs_or_is(self, instance_id: InstanceId, power: Power) -> bool:
        """Say whether there is something to do; refuse where the guest does not run."""
        there = self._existing(instance_id)
        if there.power == power:
            return False
        _must_run(instance_id, there)
        return True

    def _must_be_off(self, instance_id: InstanceId) -> None:
        if self._existing(instance_id).power in ("running", "paused"):
            raise _still_runs(instance_id)
        self._refuse_missing_disk(instance_id)

    def _refuse_missing_disk(self, instance_id: InstanceId) -> None:
        if self.disks.is_missing(instance_id):
            message = f"the disk of instance {instance_id} has not come yet"
            raise HostRefused("disk_awaited", message, instance_id=instance_id)

    def _note_copy(self, instance_id: InstanceId, target: str) -> None:
        """Write down where a guest goes, so that it is known after any death who has it."""
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE
        note = partial(
            _set_metadata, text=f"<copying to='{target}'/>", namespace=COPY_NAMESPACE, flags=flags
        )
        self._act(instance_id, "note the copy", note)

    def _failed_copy(self, instance_id: InstanceId, error: ConductorError) -> ConductorError:
        """Return the error of a copy that failed: where the guest runs, nothing has changed."""
        there = self.domain(instance_id)
        if there is None or there.power not in ("running", "paused"):
            return error
        if there.power == "paused":
            self._start(instance_id)
        if isinstance(error, HostRefused):
            return error
        return HostRefused("copy_failed", f"{error.message}; the guest runs on here")


_MIGRATABLE: Final = libvirt.VIR_DOMAIN_XML_MIGRATABLE
_INACTIVE: Final = libvirt.VIR_DOMAIN_XML_INACTIVE


def _set_metadata(domain: Any, text: str, namespace: str, flags: int) -> None:
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "copy", namespace, flags)


def _stored(spec: GuestDefinition) -> GuestDefinition:
    """Return the definition as a domain carries it: power and origin of the disk are not its."""
    own = {"power": "running", "root_disk": RootDisk()}
    return spec.model_copy(update=own)


def _must_equal(instance_id: InstanceId, found: GuestDefinition, wanted: GuestDefinition) -> None:
    if found.to_json() != wanted.to_json():
        message = f"instance {instance_id} exists here with another definition"
        raise Broken("domain_differs", message, instance_id=instance_id)


def _must_run(instance_id: InstanceId, there: GuestDomain) -> None:
    if there.power != "running":
        message = f"instance {instance_id} is {there.power}: it must run"
        raise HostRefused("not_running", message, instance_id=instance_id, power=there.power)


def _still_runs(instance_id: InstanceId) -> HostRefused:
    text = f"instance {instance_id} runs: its disk changes meanwhile"
    return HostRefused("still_running", text, instance_id=instance_id)


def _missing(instance_id: InstanceId) -> HostRefused:
    message = f"the host has no instance {instance_id}"
    return HostRefused("domain_missing", message, instance_id=instance_id)


def _copied_disk(instance_id: InstanceId) -> DiskImage:
    """Return what stands for disks that travelled with the memory: libvirt has verified them."""
    return DiskImage(id=str(instance_id), checksum="copied-by-libvirt")


@contextmanager
def _gone_is_none() -> Iterator[None]:
    with _already(libvirt.VIR_ERR_NO_DOMAIN):
        yield


@contextmanager
def _already(*codes: int) -> Iterator[None]:
    """Ignore the errors of libvirt with these numbers: what was to be done is done."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() not in codes:
            raise
