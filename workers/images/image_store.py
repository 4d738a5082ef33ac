"""The image store port: where snapshots go, for every host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Protocol

from models.errors import HostRefused
from workers.images.file_work import FileWork

STORE_SCHEME: Final = "store"
_NAME: Final = re.compile(r"[0-9a-z][0-9a-z-]{0,99}\.(raw|qcow2)")


class ImageStore(Protocol):
    """Keeps files by name, whole or not at all; a name is written once and never changed."""

    def put(self, name: str, path: Path, work: FileWork) -> str:
        """Keep a copy of a file and return its checksum; the same again changes nothing.

        `HostRefused` (`store_conflict`) where the name has other content.
        """
        ...

    def location(self, name: str) -> str:
        """Return the URL (`file`, `http`, `https`) of a file."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of all files that are whole."""
        ...

    def remove(self, name: str, checksum: str, work: FileWork) -> None:
        """Remove a file that has this checksum, `HostRefused` (`store_conflict`) any other.

        One that is gone is removed.
        """
        ...


def stored_name(source: str) -> str:
    """Return the name in `store:NAME`; `HostRefused` for any other scheme and unsafe names."""
    scheme, _, name = source.partition(":")
    if scheme != STORE_SCHEME:
        raise HostRefused("image_source", f"source is {source}: should be store:NAME")
    return safe_name(name)


def safe_name(name: str) -> str:
    """Return a name that leads nowhere else: no separators, no dots but that of its format."""
    if not is_stored_name(name):
        rule = "lower case letters, digits and '-', then .raw or .qcow2"
        raise HostRefused("store_name", f"name in the image store is {name[:100]!r}: {rule}")
    return name


def is_stored_name(name: str) -> bool:
    """Say whether a name can be that of a file in the store."""
    return _NAME.fullmatch(name) is not None


def same_checksum(name: str, expected: str, found: str) -> str:
    """Return the checksum; `HostRefused` (`store_conflict`) where the store has another."""
    if expected != found:
        message = f"{name} in the image store is {found}, not {expected}: nothing was changed"
        raise HostRefused("store_conflict", message, name=name)
    return expected
