"""What libvirt says of a domain, in the words of the port."""

from __future__ import annotations

from typing import Any, Final
from xml.etree.ElementTree import ParseError

import libvirt
from defusedxml.ElementTree import fromstring

from models.errors import Rejected
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.units import KIB_PER_MIB
from workers.hypervisor.libvirt.domain_xml.reading import copied_to, is_waiting, observed
from workers.hypervisor.ports import GuestDomain, Power

FOREIGN: Final = "foreign/"
"""Before the name of a domain that is none of ours: no id of an instance looks so."""

_POWERS: Final[dict[int, Power]] = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "running",
    libvirt.VIR_DOMAIN_SHUTDOWN: "running",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "suspended",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
}
_CRASHES: Final = (libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, libvirt.VIR_DOMAIN_SHUTOFF_FAILED)
_INCOMING: Final = (
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
    libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
)


def power_of(domain: Any, xml: str) -> Power:
    """Return what a domain is; `nostate` while it waits for the memory of a live migration."""
    state, reason = domain.state()
    if state == libvirt.VIR_DOMAIN_PAUSED and reason in _INCOMING and is_waiting(xml):
        return "nostate"
    if state != libvirt.VIR_DOMAIN_SHUTOFF:
        return _POWERS.get(state, "nostate")
    if domain.hasManagedSaveImage():
        return "suspended"
    if is_waiting(xml):
        return "nostate"
    return "crashed" if reason in _CRASHES else "shutdown"


def has_left(domain: Any, xml: str) -> str | None:
    """Return the host to which a live migration has taken the guest, if one has."""
    state, reason = domain.state()
    left = state == libvirt.VIR_DOMAIN_SHUTOFF and reason == libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED
    return copied_to(xml) if left else None


def guest_of_domain(domain: Any) -> GuestDomain:
    """Return a domain as the port has it; what cannot be read of it is its own fault alone."""
    instance_id = InstanceId(domain.UUIDString())
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE if domain.isActive() else 0)
    try:
        spec = observed(xml)
        return GuestDomain(
            instance_id, power_of(domain, xml), spec, copied_to=has_left(domain, xml)
        )
    except Rejected as error:
        if error.code == "domain_foreign":
            return _foreign(domain, xml)
        return GuestDomain(instance_id, "nostate", None, fault=error.message)


def _foreign(domain: Any, xml: str) -> GuestDomain:
    """Return a guest of somebody else's, with what it takes of the host."""
    name = InstanceId(f"{FOREIGN}{domain.name()}")
    try:
        memory_kib = int(fromstring(xml).findtext("memory") or 0)
        vcpus = int(fromstring(xml).findtext("vcpu") or 0)
    except (ParseError, ValueError):
        return GuestDomain(name, power_of(domain, xml), None, fault="its XML cannot be read")
    spec = GuestDefinition(
        name=domain.name()[:200], vcpus=vcpus, memory_mib=memory_kib // KIB_PER_MIB, disk_gb=0
    )
    return GuestDomain(name, power_of(domain, xml), spec)
