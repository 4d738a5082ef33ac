"""What the command line says of a host with libvirt; read without libvirt's binding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.hardware.host_config import HostConfig

LOCAL_LIBVIRT = "qemu:///system"
NOTHING_SET_ASIDE = HostConfig(None, None, None)
DEFAULT_DISK_PORT = 16_515
"""Where other hosts fetch the disks of guests that move to them."""
DEFAULT_CACHE_GIB = 20
"""Disk that is not offered to guests: the cache of images may take so much."""


@dataclass(frozen=True, slots=True)
class LibvirtOptions:
    """What the command line says of a host with libvirt.

    `set_aside` are the CPUs of shared and of dedicated guests, and the huge pages that none gets.
    Without a `migration_uri` other hosts reach its libvirt by TLS under its own host name.
    """

    uri: str = LOCAL_LIBVIRT
    migration_uri: str | None = None
    migration_address: str | None = None
    set_aside: HostConfig = NOTHING_SET_ASIDE
    traits: tuple[str, ...] = ()
    image_store: str | None = None
    image_folders: tuple[Path, ...] = ()
    cache_gib: int = DEFAULT_CACHE_GIB
    disk_port: int = DEFAULT_DISK_PORT
