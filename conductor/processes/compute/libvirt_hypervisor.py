"""The hypervisor of a host with libvirt: connected, probed, and described as the host is."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path

import structlog

from conductor.processes.compute.libvirt_options import LibvirtOptions
from conductor.processes.state_folders import make_folder
from models.units import MIB_PER_GIB
from workers.disks.disk_records import used_bases
from workers.disks.host_disks import DiskSettings, HostDisks
from workers.hypervisor.libvirt.connection import LibvirtConnection
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.kvm_probe import kvm_runs_guests
from workers.hypervisor.libvirt.libvirt_disks import LibvirtDisks
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHost, LibvirtHypervisor
from workers.hypervisor.ports import Hardware
from workers.images.image_cache import CacheSettings, ImageCache
from workers.images.open_image_store import open_store
from workers.inventory.host_descriptions import read_host_files
from workers.inventory.traits import traits_of

SYSFS = Path("/sys")
_BYTES_PER_GIB = MIB_PER_GIB * 1024 * 1024

log = structlog.get_logger(__name__)


def libvirt_hypervisor(name: str, folder: Path, options: LibvirtOptions) -> LibvirtHypervisor:
    """Return the hypervisor of this machine; guests' files are kept in `folder`.

    Raises `Rejected` for CPU sets that the machine does not have.
    """
    guests = folder / "guests"
    make_folder(guests, "--state-dir")
    hardware = partial(read_hardware, options, guests)
    topology = hardware().topology
    virtualization = "kvm" if kvm_runs_guests() else "qemu"
    if virtualization == "qemu":
        log.warning("KVM runs no guests here: they are emulated, and slow")
    shared = {cell.id: cell.shared_cpus for cell in topology.cells}
    address = options.migration_address or socket.getfqdn()
    host = LibvirtHost(
        HostContext("kvm" if virtualization == "kvm" else "qemu", guests, shared),
        options.migration_uri or f"qemu+tls://{address}/system",
        address,
    )
    return LibvirtHypervisor(
        LibvirtConnection(options.uri), host, _disks(name, folder, options), hardware
    )


def _disks(name: str, folder: Path, options: LibvirtOptions) -> LibvirtDisks:
    store = open_store(options.image_store) if options.image_store else None
    disks = folder / "disks"
    settings = CacheSettings(folder / "images", options.cache_gib, options.image_folders, store)
    cache = ImageCache(settings, partial(used_bases, disks))
    return LibvirtDisks(HostDisks(DiskSettings(disks, name, store=store), cache), cache)


def read_hardware(options: LibvirtOptions, guests: Path) -> Hardware:
    """Return what the machine is made of now: cells from sysfs, disk from the file system."""
    (found,) = read_host_files([SYSFS], options.cpu_sets)
    disk = os.statvfs(guests)
    whole_gb = disk.f_blocks * disk.f_frsize // _BYTES_PER_GIB
    disk_gb = max(0, whole_gb - options.cache_gib)
    traits = traits_of([f"HW_ARCH_{os.uname().machine.upper()}", *found.traits, *options.traits])
    return Hardware(found.topology, disk_gb, traits)
