"""An image store that is a server, by HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from models.errors import HostRefused, Unreachable
from workers.images.file_work import CHUNK_BYTES, FileWork, Meter, checksum_of
from workers.images.image_store import is_stored_name, safe_name, same_checksum

_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)


class HttpStore:
    """A server that takes PUT, GET, HEAD and DELETE of files below one URL.

    A listing is the GET of the URL itself, as a JSON array of names.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, name: str, path: Path, work: FileWork) -> str:
        """Send the file, then read it back: what the server keeps is compared, not believed."""
        checksum = checksum_of(path, work)
        with _reaching(self._url) as client:
            found = self._checksum(client, name, work)
            if found is not None:
                return same_checksum(name, checksum, found)
            headers = {"Content-Length": str(path.stat().st_size), "If-None-Match": "*"}
            answer = client.put(self.location(name), content=_chunks(path, work), headers=headers)
            _refuse_status(answer, self._url)
            return same_checksum(name, checksum, self._checksum(client, name, work) or "nothing")

    def location(self, name: str) -> str:
        """Return the URL of the file."""
        return f"{self._url}/{safe_name(name)}"

    def names(self) -> frozenset[str]:
        """Return what the server lists."""
        with _reaching(self._url) as client:
            answer = client.get(f"{self._url}/")
            _refuse_status(answer, self._url)
            listed = answer.json()
        return frozenset(str(name) for name in listed if is_stored_name(str(name)))

    def remove(self, name: str, checksum: str, work: FileWork) -> None:
        """Remove the file once its content has been compared."""
        with _reaching(self._url) as client:
            found = self._checksum(client, name, work)
            if found is None:
                return
            same_checksum(name, checksum, found)
            _refuse_status(client.delete(self.location(name)), self._url)

    def _checksum(self, client: httpx.Client, name: str, work: FileWork) -> str | None:
        digest = hashlib.sha256()
        with client.stream("GET", self.location(name)) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            _refuse_status(answer, self._url)
            meter = Meter(work, int(answer.headers.get("Content-Length", 0)))
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                digest.update(chunk)
                meter.add(len(chunk))
        return f"sha256:{digest.hexdigest()}"


@contextmanager
def _reaching(url: str) -> Iterator[httpx.Client]:
    """Have a client; what goes wrong on the way is `Unreachable` (`store_unreachable`)."""
    try:
        with httpx.Client(timeout=_TIMEOUT) as client:
            yield client
    except (httpx.HTTPError, ValueError) as error:
        message = f"the image store {url} does not answer as it should: {error}"
        raise Unreachable("store_unreachable", message) from error


def _refuse_status(answer: httpx.Response, url: str) -> None:
    if answer.is_success:
        return
    message = f"the image store {url} answered {answer.status_code}"
    if answer.is_client_error:
        raise HostRefused("store_refused", message, status=answer.status_code)
    raise Unreachable("store_unreachable", message, status=answer.status_code)


def _chunks(path: Path, work: FileWork) -> Iterator[bytes]:
    meter = Meter(work, path.stat().st_size)
    with path.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            yield chunk
            meter.add(len(chunk))
