"""An image store that is a folder, which hosts may share."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from workers.images.durable_files import publish, refusing_full_disk, sync_folder
from workers.images.file_work import CHUNK_BYTES, FileWork, Meter, checksum_of
from workers.images.image_store import is_stored_name, safe_name, same_checksum


class DirectoryStore:
    """A folder, which hosts may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, path: Path, work: FileWork) -> str:
        """Copy the file beside, read the copy again, and give it its name."""
        final = self._folder / safe_name(name)
        checksum = checksum_of(path, work)
        if final.exists():
            return same_checksum(name, checksum, checksum_of(final, work))
        made = self._folder / f".{name}.{uuid4().hex}.new"
        try:
            with refusing_full_disk(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                _copy(path, made, work)
                same_checksum(name, checksum, checksum_of(made, work))
                publish(made, final)
        finally:
            made.unlink(missing_ok=True)
        return checksum

    def location(self, name: str) -> str:
        """Return the path of the file as a URL."""
        return (self._folder / safe_name(name)).absolute().as_uri()

    def names(self) -> frozenset[str]:
        """Return what is there, half written files not."""
        if not self._folder.is_dir():
            return frozenset()
        return frozenset(path.name for path in self._folder.iterdir() if is_stored_name(path.name))

    def remove(self, name: str, checksum: str, work: FileWork) -> None:
        """Remove the file once its content has been compared."""
        path = self._folder / safe_name(name)
        if not path.exists():
            return
        same_checksum(name, checksum, checksum_of(path, work))
        path.unlink(missing_ok=True)
        sync_folder(self._folder)


def _copy(path: Path, made: Path, work: FileWork) -> None:
    meter = Meter(work, path.stat().st_size)
    with path.open("rb") as source, made.open("xb") as target:
        while chunk := source.read(CHUNK_BYTES):
            target.write(chunk)
            meter.add(len(chunk))
