"""Content fetched from its source: bounded, resumed, and verified while it comes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import httpx

from models.errors import HostRefused, Unreachable
from models.messages.guests.image_files import ImageFile
from workers.images.durable_files import refusing_full_disk
from workers.images.file_work import CHUNK_BYTES, FileWork, Meter
from workers.images.image_checks import corrupt

TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_MOST_REDIRECTS: Final = 5


Opened: TypeAlias = Callable[[int], AbstractContextManager[Iterator[bytes]]]
"""Opens content at an offset in bytes."""


def download(opened: Opened, image: ImageFile, part: Path, work: FileWork) -> None:
    """Have content in `part`, of the size and checksum that the image declares.

    What an earlier try has left in `part` is kept and continued. `Unreachable`
    (`image_unreachable`) leaves it for the next; (`image_corrupt`), like a full disk, removes it.
    """
    try:
        with refusing_full_disk(part.parent), part.open("ab") as kept:
            digest, done = _digest_of(part, image, work)
            if done < _size(image):
                with opened(done) as chunks:
                    _append(kept, chunks, digest, done, image, work)
            os.fsync(kept.fileno())
        _verify(digest, part, image)
    except (HostRefused, Unreachable) as error:
        if error.code not in ("image_unreachable", "aborted"):
            part.unlink(missing_ok=True)
        raise


def _size(image: ImageFile) -> int:
    assert image.size_bytes is not None
    return image.size_bytes


def _digest_of(part: Path, image: ImageFile, work: FileWork) -> tuple[hashlib._Hash, int]:
    digest, done = hashlib.sha256(), part.stat().st_size
    if done > _size(image):
        raise corrupt(image, f"{done} bytes, declared are {image.size_bytes}")
    with part.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            work.check()
    return digest, done


def _append(
    kept: BinaryIO,
    chunks: Iterator[bytes],
    digest: hashlib._Hash,
    done: int,
    image: ImageFile,
    work: FileWork,
) -> None:
    meter = Meter(work, _size(image), done)
    for chunk in chunks:
        done += len(chunk)
        if done > _size(image):
            raise corrupt(image, f"more than the {image.size_bytes} bytes that were declared")
        kept.write(chunk)
        digest.update(chunk)
        meter.add(len(chunk))
    kept.flush()


def _verify(digest: hashlib._Hash, part: Path, image: ImageFile) -> None:
    size = part.stat().st_size
    if size < _size(image):
        # The next try continues: a connection that ends early looks like this.
        message = f"image {image.id} ended after {size} of {image.size_bytes} bytes"
        raise Unreachable("image_unreachable", message)
    found = f"sha256:{digest.hexdigest()}"
    if found != image.checksum:
        raise corrupt(image, f"its checksum is {found}, declared is {image.checksum}")


def source_of(url: str, file_roots: Sequence[Path]) -> Opened:
    """Return what opens a URL; files of the host are read only below `file_roots`."""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return partial(_file_chunks, url, file_roots)
    if scheme in ("http", "https"):
        return partial(http_chunks, url, _client)
    message = f"source is {url}: should begin with file:, http:, https: or store:"
    raise HostRefused("image_source", message)


def _client() -> httpx.Client:
    return httpx.Client(timeout=TIMEOUT, follow_redirects=True, max_redirects=_MOST_REDIRECTS)


@contextmanager
def _file_chunks(url: str, file_roots: Sequence[Path], done: int) -> Iterator[Iterator[bytes]]:
    with _local_file(url, file_roots).open("rb") as content:
        content.seek(done)
        yield iter(lambda: content.read(CHUNK_BYTES), b"")


def _local_file(url: str, file_roots: Sequence[Path]) -> Path:
    """Return the file of a `file` URL; whoever defines images shall not read this host's files."""
    parts = urlsplit(url)
    path = Path(os.path.realpath(unquote(parts.path)))
    if parts.netloc or not any(path.is_relative_to(root.resolve()) for root in file_roots):
        message = f"source is {url}: this host takes image files from its image folders only"
        raise HostRefused("image_source", message)
    if not path.is_file():
        raise Unreachable("image_unreachable", f"source is {url}: no such file on this host")
    return path


@contextmanager
def http_chunks(
    url: str, make_client: Callable[[], httpx.Client], done: int
) -> Iterator[Iterator[bytes]]:
    """Open content by HTTP at an offset, by a range where the server knows ranges."""
    # Compressed on the way, sizes and ranges would be of something else.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        with make_client() as client, client.stream("GET", url, headers=headers) as answer:
            _refuse_status(url, answer)
            begins = done if answer.status_code == httpx.codes.PARTIAL_CONTENT else 0
            if begins and not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
                raise Unreachable("image_unreachable", f"{url} answers with another range")
            yield _skipping(answer.iter_raw(), done - begins)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable("image_unreachable", f"{url} cannot be fetched: {error}") from error


def _skipping(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Leave out what an earlier try has kept, where the server knows no ranges."""
    for chunk in chunks:
        if count < len(chunk):
            yield chunk[count:]
        count = max(0, count - len(chunk))


def _refuse_status(url: str, answer: httpx.Response) -> None:
    if answer.is_success:
        return
    message = f"{url} answered {answer.status_code}"
    gone = (httpx.codes.NOT_FOUND, httpx.codes.GONE, httpx.codes.FORBIDDEN)
    if answer.status_code in gone:
        raise HostRefused("image_missing", message, status=answer.status_code)
    raise Unreachable("image_unreachable", message, status=answer.status_code)
