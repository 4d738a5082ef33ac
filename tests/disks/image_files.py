"""Image files for tests, made by a real qemu-img, good ones and traps."""

from __future__ import annotations

import hashlib
import random
import subprocess
from pathlib import Path

from models.messages.guests.image_files import ImageFile

MIB = 1 << 20


def content(mib: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(mib * MIB)


def raw_file(path: Path, mib: int = 2, seed: int = 1) -> Path:
    path.write_bytes(content(mib, seed))
    return path


def qcow2_file(path: Path, mib: int = 2, seed: int = 1) -> Path:
    raw = raw_file(path.with_suffix(".tmp"), mib, seed)
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, path)
    raw.unlink()
    return path


def qemu_img(*args: object) -> None:
    subprocess.run(["qemu-img", *map(str, args)], check=True, capture_output=True)


def declared(path: Path, source: str, **changed: object) -> ImageFile:
    """Return what a catalogue says of a file that is as it was declared, but for `changed`."""
    data = path.read_bytes()
    fields: dict[str, object] = {
        "id": "debian",
        "source": source,
        "format": path.suffix.removeprefix("."),
        "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "size_bytes": len(data),
    }
    return ImageFile.model_validate(fields | changed)
