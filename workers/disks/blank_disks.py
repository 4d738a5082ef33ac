"""Disks with nothing on them: ephemeral ones, and swap with its header."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from models.errors import HostRefused
from workers.images.durable_files import publish, refusing_full_disk

_TIMEOUT_S: Final = 60.0
_MKSWAP_IN: Final = "/usr/sbin:/sbin:/usr/bin:/bin"


def make_blank(path: Path, size_bytes: int, *, swap: bool) -> None:
    """Have a sparse raw disk; of swap with a header where the host has mkswap."""
    made = path.with_name(f"{path.name}.making")
    with refusing_full_disk(path.parent):
        with made.open("wb") as content:
            content.truncate(size_bytes)
        tool = shutil.which("mkswap", path=_MKSWAP_IN) if swap else None
        if tool is not None:
            _write_header(tool, made)
        publish(made, path)


def _write_header(tool: str, made: Path) -> None:
    made.chmod(0o600)
    args = [tool, "--quiet", str(made)]
    try:
        ended = subprocess.run(args, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise HostRefused("mkswap_failed", f"mkswap took over {_TIMEOUT_S:.0f} s") from None
    if ended.returncode:
        raise HostRefused("mkswap_failed", f"mkswap failed ({ended.returncode})")
