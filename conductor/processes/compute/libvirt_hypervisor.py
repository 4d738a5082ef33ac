"""The hypervisor of a host with libvirt: connected, probed, and described as the host is."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from typing import Any, Literal

import structlog

from conductor.processes.compute.libvirt_options import LibvirtOptions
from conductor.processes.state_folders import make_folder
from workers.disks.disk_records import used_bases
from workers.disks.host_disks import DiskSettings, HostDisks
from workers.hypervisor.libvirt.connection import LibvirtConnection
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.domain_xml.writing import MACHINE
from workers.hypervisor.libvirt.kvm_probe import kvm_runs_guests
from workers.hypervisor.libvirt.libvirt_disks import LibvirtDisks
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHost, LibvirtHypervisor
from workers.hypervisor.ports import GuestDomain
from workers.images.image_cache import CacheSettings, ImageCache
from workers.images.open_image_store import open_store
from workers.inventory.this_host import ThisHost
from workers.inventory.traits import traits_of

log = structlog.get_logger(__name__)


def libvirt_hypervisor(name: str, folder: Path, options: LibvirtOptions) -> LibvirtHypervisor:
    """Return the hypervisor of this machine; guests' files are kept in `folder`.

    Raises `Rejected` for CPU sets and pages that the machine does not have.
    """
    guests = folder / "guests"
    make_folder(guests, "--state-dir")
    connection = LibvirtConnection(options.uri)
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
    address = options.migration_address or socket.getfqdn()
    host = LibvirtHost(
        HostContext(virtualization, guests, shared),
        options.migration_uri or f"qemu+tls://{address}/system",
        address,
    )
    disks = _disks(name, folder, options)
    hypervisor = LibvirtHypervisor(connection, host, disks, machine.hardware)
    return hypervisor


def _disks(name: str, folder: Path, options: LibvirtOptions) -> LibvirtDisks:
    store = open_store(options.image_store) if options.image_store else None
    disks = folder / "disks"
    settings = CacheSettings(folder / "images", options.cache_gib, options.image_folders, store)
    cache = ImageCache(settings, partial(used_bases, disks))
    return LibvirtDisks(HostDisks(DiskSettings(disks, name, store=store), cache), cache)


def _capabilities(virtualization: str, connection: Any) -> str:
    architecture = os.uname().machine
    return str(connection.getDomainCapabilities(None, architecture, MACHINE, virtualization))
