"""Where a host with libvirt keeps disks and images, and how other hosts fetch disks from it."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from conductor.processes.compute.libvirt_options import LibvirtOptions
from workers.disks.disk_offers import DiskOffers, OfferSettings
from workers.disks.disk_records import used_bases
from workers.disks.host_disks import DiskSettings, HostDisks
from workers.hypervisor.libvirt.libvirt_disks import LibvirtDisks
from workers.images.image_cache import CacheSettings, ImageCache
from workers.images.open_image_store import open_store


def libvirt_disks(name: str, folder: Path, options: LibvirtOptions) -> LibvirtDisks:
    """Return the disks of the host `name` below `folder`, and begin to serve those it offers."""
    store = open_store(options.image_store) if options.image_store else None
    disks = folder / "disks"
    stored = urlsplit(options.image_store or "")
    roots = (*options.image_folders, *([Path(stored.path)] if stored.scheme == "file" else ()))
    settings = CacheSettings(folder / "images", options.cache_gib, roots, store)
    cache = ImageCache(settings, partial(used_bases, disks))
    host_disks = HostDisks(DiskSettings(disks, name, store=store), cache)
    offers = DiskOffers(
        host_disks, OfferSettings(address_of(options), options.disk_port, folder / "keys")
    )
    offers.start()
    return LibvirtDisks(host_disks, cache, offers)


def address_of(options: LibvirtOptions) -> str:
    """Return where other hosts reach this one: as it was told, or by its own name."""
    return options.migration_address or socket.getfqdn()
