"""The few files of a sysfs tree that say what a host is made of, from a directory or a tarball.

A tarball is read as a stream and never unpacked: no path in it can name a file of ours, links in
it are not followed, and what it expands to is bounded.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

from models.errors import Rejected

Tree: TypeAlias = Mapping[str, str]
"""Path below the root of the host's file system (`sys/…`, `proc/meminfo`) to stripped text."""

LARGEST_FILE = 64 * 1024
LARGEST_TARBALL = 64 * 1024 * 1024

SYSTEM = ("sys", "devices", "system")
_ROOTED = (SYSTEM, ("sys", "kernel", "mm"))
_PATTERNS = (
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu[0-9]*/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu[0-9]*/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings",
    "sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id",
    "sys/devices/system/node/online",
    "sys/devices/system/node/node[0-9]*/cpulist",
    "sys/devices/system/node/node[0-9]*/cpumap",
    "sys/devices/system/node/node[0-9]*/meminfo",
    "sys/devices/system/node/node[0-9]*/vmstat",
    "sys/devices/system/node/node[0-9]*/hugepages/hugepages-[0-9]*kB/*_hugepages",
    "sys/kernel/mm/hugepages/hugepages-[0-9]*kB/*_hugepages",
    "proc/meminfo",
    "proc/vmstat",
)
_WANTED = re.compile(
    "|".join(
        re.escape(pattern).replace(r"\[0\-9\]\*", "[0-9]+").replace(r"\*", "[a-z]+")
        for pattern in _PATTERNS
    )
)


def read_directory(path: Path) -> Tree:
    """Return the tree in a directory that holds `sys/devices/system`, itself or one level down."""
    root = _root(path)
    tree = {}
    for pattern in _PATTERNS:
        for file in sorted(root.glob(pattern)):
            # A link out of the tree is no part of the host it describes.
            if file.is_file() and file.resolve().is_relative_to(root.resolve()):
                name = file.relative_to(root).as_posix()
                with file.open("rb") as content:
                    tree[name] = _text(name, content.read(LARGEST_FILE + 1))
    return tree


def read_tarball(path: Path) -> Tree:
    """Return the tree in a tarball (plain, gzip, bzip2 or xz), below whatever prefix it has.

    Raises `Rejected`: `file_damaged`, `path_unsafe`, `file_too_large`, `tree_missing`,
    `tree_ambiguous`.
    """
    trees: dict[PurePosixPath, dict[str, str]] = {}
    try:
        with _decompressed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tarball:
            for prefix, name, text in _members(tarball):
                trees.setdefault(prefix, {})[name] = text
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise Rejected("file_damaged", f"the tarball cannot be read: {error}") from None
    described = [prefix for prefix, tree in trees.items() if any(map(_is_system, tree))]
    if not described:
        raise _missing()
    if len(described) > 1:
        raise _ambiguous(described)
    return trees[described[0]]


def is_tarball(path: Path) -> bool:
    """Say whether a file looks like a tarball, compressed or not."""
    with path.open("rb") as file:
        start = file.read(512)
    return _compression(start) is not None or start[257:262] == b"ustar"


def _members(tarball: tarfile.TarFile) -> Iterator[tuple[PurePosixPath, str, str]]:
    for member in tarball:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            message = f"the tarball names {member.name[:80]!r}: paths lead into it, not out"
            raise Rejected("path_unsafe", message)
        if not member.isreg():
            continue
        prefix, name = _split(path)
        if _WANTED.fullmatch(name):
            content = tarball.extractfile(member)
            if content is not None:
                yield prefix, name, _text(name, content.read(LARGEST_FILE + 1))


def _split(path: PurePosixPath) -> tuple[PurePosixPath, str]:
    """Return what comes before the root of the described host, and the path below it."""
    parts = path.parts
    for position in range(len(parts)):
        below = parts[position:]
        if below[:3] in _ROOTED or below[:1] == ("proc",):
            return PurePosixPath(*parts[:position]), "/".join(below)
    return path, ""


def _text(name: str, content: bytes) -> str:
    if len(content) > LARGEST_FILE:
        raise Rejected("file_too_large", f"{name} is larger than {LARGEST_FILE} bytes")
    # Some kernels end their lists with a NUL byte.
    return content.partition(b"\0")[0].decode("ascii", errors="replace").strip()


def _root(path: Path) -> Path:
    if path.name == "sys" and path.joinpath(*SYSTEM[1:]).is_dir():
        return path.parent
    below = [path, *sorted(item for item in path.iterdir() if item.is_dir())]
    roots = [item for item in below if item.joinpath(*SYSTEM).is_dir()]
    if not roots:
        raise _missing()
    if len(roots) > 1 and roots[0] != path:
        raise _ambiguous([PurePosixPath(root.name) for root in roots])
    return roots[0]


def _is_system(name: str) -> bool:
    return PurePosixPath(name).parts[:3] == SYSTEM


def _missing() -> Rejected:
    return Rejected("tree_missing", "no sys/devices/system with CPUs is in it")


def _ambiguous(prefixes: list[PurePosixPath]) -> Rejected:
    names = ", ".join(sorted(map(str, prefixes))[:3])
    return Rejected("tree_ambiguous", f"it holds more than one sysfs tree: {names}")


class _Bounded:
    """A stream that refuses to give more than a bound, whatever a few bytes expand to."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = LARGEST_TARBALL

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            message = f"the tarball expands to more than {LARGEST_TARBALL // 2**20} MiB"
            raise Rejected("file_too_large", message)
        return content


@contextmanager
def _decompressed(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        opened = _compression(file.read(8))
        file.seek(0)
        stream = opened(file) if opened else file
        # All that a tarball read as a stream asks of its file is `read`.
        yield cast("IO[bytes]", _Bounded(cast("IO[bytes]", stream)))


def _compression(start: bytes) -> Callable[[IO[bytes]], object] | None:
    if start.startswith(b"BZh"):
        return bz2.BZ2File
    if start.startswith(b"\x1f\x8b"):
        return lambda file: gzip.GzipFile(fileobj=file)
    if start.startswith(b"\xfd7zXZ"):
        return lzma.LZMAFile
    return None
