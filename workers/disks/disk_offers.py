"""Disks that other hosts may fetch: exported, and served by HTTPS to whoever has the ticket."""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
import subprocess
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from models.errors import HostRefused
from models.ids import InstanceId, is_uuid
from models.messages.guests.root_disks import DiskImage
from workers.disks.disk_files import DiskFile
from workers.disks.disk_tickets import DiskTicket, OfferedFile
from workers.disks.host_disks import HostDisks
from workers.disks.shared_storage import storage_id
from workers.images.durable_files import publish, read_record, write_record
from workers.images.file_work import CHUNK_BYTES, FileWork, checksum_of
from workers.images.qemu_img import convert

_RECORD: Final = "offer.json"
_TIMEOUT_S: Final = 60.0
_DAYS: Final = "3650"


@dataclass(frozen=True, slots=True)
class OfferSettings:
    """Where other hosts reach this one, and where its key and certificate are kept."""

    address: str
    port: int
    folder: Path


class DiskOffers:
    """Serves what is offered until it is withdrawn, also after a restart: all of it is on disk."""

    def __init__(self, disks: HostDisks, settings: OfferSettings) -> None:
        self._disks = disks
        self._settings = settings
        self._certificate = _certificate(settings.folder)
        self._server = _Server((settings.address, settings.port), disks.settings.folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._certificate)
        self._server.context = context

    def start(self) -> None:
        """Serve, in threads of its own."""
        Thread(target=self._server.serve_forever, name="disk-offers", daemon=True).start()

    def stop(self) -> None:
        """Serve no longer; what is offered stays so."""
        self._server.shutdown()
        self._server.server_close()

    def offer(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Export the disks of a guest that does not run and return the ticket; they stay here.

        Offered again, the earlier ticket is worth nothing. `HostRefused` (`disk_missing`).
        """
        folder = self._disks.root(instance_id).path.parent
        self.withdraw(instance_id)
        files = tuple(_exported(disk, work) for disk in self._disks.files(instance_id))
        host = self._settings.address
        ticket = DiskTicket(
            url=f"https://{host}:{self._server.server_port}/{instance_id}",
            certificate=_public_part(self._certificate),
            token=secrets.token_urlsafe(32),
            storage_id=storage_id(self._disks.settings.folder),
            files=files,
        )
        names = {file.name: f"{file.name}.offer" for file in files}
        write_record(folder / _RECORD, {"token": ticket.token, "files": names})
        id_ = str(uuid.uuid5(uuid.NAMESPACE_OID, ticket.checksum()))
        return DiskImage(id=id_, checksum=ticket.checksum(), ticket=ticket.to_json())

    def withdraw(self, instance_id: InstanceId) -> None:
        """Make the ticket worthless and remove what was exported, half written or whole."""
        folder = self._disks.folder_of(instance_id)
        (folder / _RECORD).unlink(missing_ok=True)
        for exported in folder.glob("*.offer*"):
            exported.unlink()


def _exported(disk: DiskFile, work: FileWork) -> OfferedFile:
    """Write the disk without what it stands on: the other host has no such base."""
    made = disk.path.parent / f"{disk.name}.offer.making"
    final = disk.path.parent / f"{disk.name}.offer"
    convert((disk.path, disk.format), (made, "qcow2"), work)
    checksum = checksum_of(made, work)
    publish(made, final)
    size = final.stat().st_size
    return OfferedFile(name=disk.name, format="qcow2", checksum=checksum, size_bytes=size)


def _certificate(folder: Path) -> Path:
    """Return the file of key and certificate of this host, made on first use."""
    path = folder / "disk-offers.pem"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    made, key = folder / "disk-offers.new", folder / "disk-offers.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=disk-offers", "-days", _DAYS]
    args = ["openssl", "req", "-x509", *curve, *named, "-keyout", str(key), "-out", str(made)]
    try:
        for private in (key, made):
            private.touch(mode=0o600)
        subprocess.run(args, check=True, capture_output=True, timeout=_TIMEOUT_S)
        made.write_text(key.read_text() + made.read_text())
        publish(made, path)
    except (OSError, subprocess.SubprocessError) as error:
        raise HostRefused("no_certificate", f"openssl made no certificate: {error}") from error
    finally:
        key.unlink(missing_ok=True)
    return path


def _public_part(certificate: Path) -> str:
    text = certificate.read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        super().__init__(address, _Handler)
        self.folder = folder

    def handle_error(self, *_: Any) -> None:
        """Say nothing: whoever does not shake hands is no host of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S

    def setup(self) -> None:
        """Shake hands in the thread of the connection, so that a slow one holds up nobody."""
        self.request.settimeout(_TIMEOUT_S)
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def log_message(self, *_: object) -> None:
        """Say nothing: the request would name the guest."""

    def do_GET(self) -> None:
        """Serve one file from an offset; whoever lacks the token learns nothing."""
        path = _offered(self.server.folder, self.path, self.headers.get("Authorization", ""))
        if path is None:
            self.send_error(404)
            return
        with path.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            begins = _offset(self.headers.get("Range", ""), size)
            content.seek(begins)
            self.send_response(206 if begins else 200)
            self.send_header("Content-Length", str(size - begins))
            if begins:
                self.send_header("Content-Range", f"bytes {begins}-{size - 1}/{size}")
            self.end_headers()
            while chunk := content.read(CHUNK_BYTES):
                self.wfile.write(chunk)


def _offered(folder: Path, path: str, authorization: str) -> Path | None:
    """Return the file that a request may have, None where it may not."""
    _, instance_id, name = (*path.split("/"), "", "")[:3]
    if not is_uuid(instance_id):
        return None
    offer = read_record(folder / instance_id / _RECORD)
    given = authorization.encode()
    if offer is None or not hmac.compare_digest(given, f"Bearer {offer['token']}".encode()):
        return None
    file = offer["files"].get(name)
    return folder / instance_id / file if file else None


def _offset(wanted: str, size: int) -> int:
    begins = wanted.removeprefix("bytes=").removesuffix("-")
    return min(int(begins), size) if begins.isdecimal() else 0
