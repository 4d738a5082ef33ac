"""Disks of another host fetched by its ticket: whole and proven, or not at all."""

from __future__ import annotations

import ssl
from functools import partial

import httpx

from models.errors import HostRefused, Unreachable
from models.ids import InstanceId
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.disks.disk_tickets import DiskTicket, ticket_of
from workers.disks.host_disks import HostDisks
from workers.disks.shared_storage import storage_id
from workers.images.file_work import FileWork
from workers.images.image_checks import IMAGE_CORRUPT, checked_size
from workers.images.image_download import TIMEOUT, download, http_chunks


def take_disks(disks: HostDisks, instance_id: InstanceId, disk: DiskImage, work: FileWork) -> str:
    """Have the disks that another host offers, and return what proves them.

    On storage that both hosts share nothing is copied. What came before a failure is continued.
    `HostRefused` (`disk_damaged`, or as for images), nothing kept, when it is not what was offered.
    """
    ticket = ticket_of(disk)
    if ticket.storage_id == storage_id(disks.settings.folder):
        disks.root(instance_id)
        disks.move_here(instance_id)
        return disk.checksum
    folder = disks.folder_of(instance_id)
    came = {}
    for offered in ticket.files:
        part = folder / f"{offered.name}.{offered.checksum[-16:]}.part"
        image = ImageFile(
            id=offered.name,
            format=offered.format,
            checksum=offered.checksum,
            size_bytes=offered.size_bytes,
        )
        url = f"{ticket.url}/{offered.name}"
        try:
            download(partial(http_chunks, url, partial(_client, ticket)), image, part, work)
            checked_size(part, image, work)
        except Unreachable as error:
            if error.code != IMAGE_CORRUPT:
                raise
            raise HostRefused("disk_damaged", error.message) from error
        came[part] = f"{offered.name}.{offered.format}"
    disks.receive(instance_id, came)
    return ticket.checksum()


def _client(ticket: DiskTicket) -> httpx.Client:
    """Trust the one certificate of the ticket, whatever name is in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=ticket.certificate)
    headers = {"Authorization": f"Bearer {ticket.token}"}
    # No proxy of the environment: hosts reach each other, and the token is for one alone.
    return httpx.Client(verify=context, headers=headers, timeout=TIMEOUT, trust_env=False)
