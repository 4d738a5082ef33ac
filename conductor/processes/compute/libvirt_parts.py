"""The hypervisor of a host with libvirt: connected, probed, and described as the host is."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import structlog

from conductor.processes.compute.libvirt_options import LibvirtOptions
from conductor.processes.compute.libvirt_storage import address_of, libvirt_disks
from conductor.processes.state_folders import make_folder
from models.errors import Unreachable
from workers.hypervisor.libvirt.connection import LibvirtConnection
from workers.hypervisor.libvirt.domain_control import DomainControl
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.domain_xml.writing import MACHINE
from workers.hypervisor.libvirt.kvm_probe import kvm_runs_guests
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHost, LibvirtHypervisor
from workers.hypervisor.ports import GuestDomain
from workers.inventory.this_host import Capabilities, ThisHost
from workers.inventory.traits import traits_of

LIBVIRT_AGAIN_S: Final = 2.0
"""How long a worker that starts waits before it looks for libvirt again."""

log = structlog.get_logger(__name__)


def libvirt_hypervisor(name: str, folder: Path, options: LibvirtOptions) -> LibvirtHypervisor:
    """Return the hypervisor of this machine, once its libvirt is reached; files are in `folder`.

    Raises `Rejected` for CPU sets and pages that the machine does not have.
    """
    guests = folder / "guests"
    make_folder(guests, "--state-dir")
    connection = LibvirtConnection(options.uri)
    _wait_until_reached(connection)
    virtualization: Literal["kvm", "qemu"] = "kvm" if kvm_runs_guests() else "qemu"
    if virtualization == "qemu":
        log.warning("KVM runs no guests here: they are emulated, and slow")

    def there() -> tuple[GuestDomain, ...]:
        return hypervisor.domains()

    machine = ThisHost(
        options.set_aside,
        guests,
        options.cache_gib,
        partial(connection.call, "capabilities", partial(_capabilities, virtualization)),
        there,
        traits_of(options.traits),
    )
    shared = {cell.id: cell.shared_cpus for cell in machine.checked().cells}
    address = address_of(options)
    context = HostContext(virtualization, guests, shared)
    host = LibvirtHost(options.migration_uri or f"qemu+tls://{address}/system", address)
    disks = libvirt_disks(name, folder, options)
    hypervisor = LibvirtHypervisor(
        DomainControl(connection, context), host, disks, machine.hardware
    )
    return hypervisor


def _wait_until_reached(connection: LibvirtConnection) -> None:
    """Return when libvirt answers: a host that has just booted may start it after us."""
    while True:
        try:
            connection.call("the first call", lambda found: found.getLibVersion())
            return
        except Unreachable as error:
            log.warning("libvirt_away", reason=error.message, again_in_s=LIBVIRT_AGAIN_S)
            time.sleep(LIBVIRT_AGAIN_S)


def _capabilities(virtualization: str, connection: Any) -> Capabilities:
    architecture = os.uname().machine
    return Capabilities(
        str(connection.getCapabilities()),
        str(connection.getDomainCapabilities(None, architecture, MACHINE, virtualization)),
    )
