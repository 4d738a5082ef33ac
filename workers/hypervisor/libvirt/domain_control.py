"""The domains of one libvirt daemon: looked up, defined, started and stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import libvirt

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.console_parts import ConsolePart
from models.messages.guests.guest_definition import GuestDefinition
from workers.hypervisor.libvirt.connection import LibvirtConnection, domain_of
from workers.hypervisor.libvirt.console_files import bound, read_part
from workers.hypervisor.libvirt.domain_states import guest_of_domain, power_of
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk, HostContext
from workers.hypervisor.libvirt.domain_xml.reading import definition_in, is_ours
from workers.hypervisor.libvirt.domain_xml.writing import (
    CONSOLE_LOG,
    COPY_NAMESPACE,
    console_log,
    domain_xml,
)
from workers.hypervisor.ports import GuestDomain

INACTIVE_XML: Final = libvirt.VIR_DOMAIN_XML_INACTIVE
MIGRATABLE_XML: Final = libvirt.VIR_DOMAIN_XML_MIGRATABLE


@dataclass(frozen=True, slots=True)
class DomainControl:
    """What is done to domains one step at a time; each step may be repeated.

    Raises `HostRefused` where libvirt says no, `Unreachable` where the outcome is unknown.
    """

    connection: LibvirtConnection
    context: HostContext

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

    def act(self, instance_id: InstanceId, what: str, act: Callable[[Any], Any]) -> Any:
        """Do something with a domain that has to be there."""

        def on(connection: Any) -> Any:
            domain = domain_of(connection, instance_id)
            if domain is None:
                raise missing(instance_id)
            return act(domain)

        return self.connection.call(f"{what} of {instance_id}", on)

    def existing(self, instance_id: InstanceId) -> GuestDomain:
        """Return a guest; refuse (`domain_missing`) where there is none."""
        there = self.domain(instance_id)
        if there is None:
            raise missing(instance_id)
        return there

    def definition(self, instance_id: InstanceId) -> GuestDefinition:
        """Return the definition that a domain carries; refuse one that is none of ours."""
        xml = self.act(instance_id, "read", lambda domain: domain.XMLDesc(INACTIVE_XML))
        if not is_ours(xml):
            message = f"the domain {instance_id} was made by somebody else: it is left alone"
            raise HostRefused("domain_foreign", message, instance_id=instance_id)
        return definition_in(xml)

    def define(
        self,
        instance_id: InstanceId,
        wanted: GuestDefinition,
        disks: Sequence[GuestDisk],
        *,
        waiting: bool,
    ) -> None:
        """Have libvirt know a guest as it is wanted; checked against libvirt's own schema."""
        xml = domain_xml(instance_id, wanted, self.context, disks, waiting=waiting)
        console_log(self.context, instance_id).parent.mkdir(parents=True, exist_ok=True)
        flags = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
        self.connection.call(
            f"define {instance_id}", lambda connection: connection.defineXMLFlags(xml, flags)
        )

    def console(self, instance_id: InstanceId, offset: int | None, most_bytes: int) -> ConsolePart:
        """Return what a guest has written to its first serial port."""
        return read_part(console_log(self.context, instance_id), offset, most_bytes)

    def bound_consoles(self) -> None:
        """Begin anew what guests have written too much of."""
        for log in self.context.guests.glob(f"*/{CONSOLE_LOG}"):
            bound(log)

    def start(self, instance_id: InstanceId) -> None:
        """Have a guest run: begun, resumed, or read back from its saved memory."""

        def start(domain: Any) -> None:
            power = power_of(domain, domain.XMLDesc(0))
            if power == "paused":
                domain.resume()
            elif power not in ("running", "nostate"):
                domain.create()

        self.act(instance_id, "start", start)

    def stop(self, instance_id: InstanceId) -> None:
        """Have a guest stopped at once, and its saved memory forgotten."""

        def stop(domain: Any) -> None:
            if domain.isActive():
                with _already(libvirt.VIR_ERR_OPERATION_INVALID):
                    domain.destroy()
            if domain.hasManagedSaveImage():
                domain.managedSaveRemove()

        self.act(instance_id, "stop", stop)

    def forget(self, instance_id: InstanceId) -> None:
        """Have libvirt forget a stopped guest and what its firmware remembers; its TPM stays.

        Keys for secure boot are among the latter: without this a guest would keep those it had, or
        the want of them, under its next definition.
        """
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
        )
        self.act(instance_id, "forget", lambda domain: domain.undefineFlags(flags))

    def is_active(self, instance_id: InstanceId) -> bool:
        """Say whether a guest has a process."""
        return bool(self.act(instance_id, "look", lambda domain: domain.isActive()))

    def note_copy(self, instance_id: InstanceId, target: str) -> None:
        """Write down where a guest goes, so that it is known after any death who has it."""
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE
        note = partial(
            _set_metadata, text=f"<copying to='{target}'/>", namespace=COPY_NAMESPACE, flags=flags
        )
        self.act(instance_id, "note the copy", note)


def _set_metadata(domain: Any, text: str, namespace: str, flags: int) -> None:
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "copy", namespace, flags)


def firmware_of(guest: GuestDefinition) -> tuple[str | None, bool, bool]:
    """Return what decides what a guest's firmware remembers when it first starts."""
    hardware = guest.hardware
    return hardware.firmware, hardware.secure_boot, hardware.stateless_firmware


def must_run(instance_id: InstanceId, there: GuestDomain) -> None:
    """Refuse (`not_running`) a guest that does not run."""
    if there.power != "running":
        message = f"instance {instance_id} is {there.power}: it must run"
        raise HostRefused("not_running", message, instance_id=instance_id, power=there.power)


def still_runs(instance_id: InstanceId) -> HostRefused:
    """Return the error of a guest whose disk changes while it is wanted still."""
    text = f"instance {instance_id} runs: its disk changes meanwhile"
    return HostRefused("still_running", text, instance_id=instance_id)


def missing(instance_id: InstanceId) -> HostRefused:
    """Return the error of a guest that is not here."""
    message = f"the host has no instance {instance_id}"
    return HostRefused("domain_missing", message, instance_id=instance_id)


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
