"""qemu-img under limits: memory, CPU, time, no network, and it dies with us."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from models.errors import HostRefused
from models.messages.catalogue import ImageFormat
from workers.images.file_work import FileWork

_MEMORY_BYTES: Final = 2 << 30
_MOST_OUTPUT_BYTES: Final = 1 << 20
_LEAKS_ONLY: Final = 3
_LOOK_AGAIN_S: Final = 0.2
_SHOWN: Final = 300
_PERCENT: Final = re.compile(rb"\((\d+)\.\d+/100%\)")


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """How much CPU time and how much time in all one run of the tool may take, in seconds."""

    cpu_s: int
    timeout_s: float


LOOK: Final = ToolLimits(cpu_s=30, timeout_s=60.0)
CHECK: Final = ToolLimits(cpu_s=300, timeout_s=1_800.0)
CONVERT: Final = ToolLimits(cpu_s=3_600, timeout_s=6 * 3_600.0)


def info(path: Path, image_format: ImageFormat, work: FileWork) -> dict[str, Any]:
    """Return what qemu-img says of a file of a declared format; nothing is probed."""
    args = ["info", "--output=json", "-f", image_format, str(path)]
    printed = json.loads(run(args, LOOK, work))
    return printed if isinstance(printed, dict) else {}


def check(path: Path, work: FileWork) -> None:
    """Raise `HostRefused` (`image_damaged`) for a qcow2 file that refers to what is not there.

    Reading would not find out: what is behind the end of the file reads as zeros.
    """
    try:
        run(["check", "-q", "-f", "qcow2", str(path)], CHECK, work)
    except HostRefused as error:
        if error.code != "qemu_img_failed":
            raise
        if error.data["exit_code"] == _LEAKS_ONLY:
            return
        message = f"the qcow2 file is cut off or damaged: {error.message}"
        raise HostRefused("image_damaged", message) from error


def convert(
    source: tuple[Path, ImageFormat],
    target: tuple[Path, ImageFormat],
    work: FileWork,
    guard: Callable[[], None] = lambda: None,
) -> None:
    """Write a file in another format, holes kept; its backing file is read where it has one.

    `guard` is called again and again and ends it by raising. Slowed to `work.bytes_per_s`.
    """
    rate = ["-r", str(work.bytes_per_s)] if work.bytes_per_s else []
    (origin, origin_format), (made, made_format) = source, target
    formats = ["-f", origin_format, "-O", made_format]
    # Without the host's cache, where that can be: it is the guests', and they read on.
    cached = "writeback" if _lacks_direct_io(made.parent) else "none"
    args = ["convert", "-p", "-t", cached, *rate, *formats, str(origin), str(made)]
    run(args, CONVERT, work, guard)


def run(
    args: Sequence[str],
    limits: ToolLimits,
    work: FileWork,
    guard: Callable[[], None] = lambda: None,
) -> bytes:
    """Run qemu-img and return what it printed; `HostRefused` (`qemu_img_failed`) otherwise."""
    with tempfile.TemporaryFile() as errors:
        started = subprocess.Popen(
            [*_limited(limits), "qemu-img", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
        try:
            printed = _await(started, limits, work, guard)
        finally:
            if started.poll() is None:
                started.kill()
            started.wait()
        if started.returncode:
            raise _failed(args[0], started.returncode, errors)
        return printed


def _await(
    started: subprocess.Popen[bytes],
    limits: ToolLimits,
    work: FileWork,
    guard: Callable[[], None],
) -> bytes:
    ends = time.monotonic() + limits.timeout_s
    printed = bytearray()
    pipe = started.stdout
    assert pipe is not None
    with pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            work.check()
            guard()
            if time.monotonic() > ends:
                raise HostRefused("qemu_img_slow", f"qemu-img took over {limits.timeout_s:.0f} s")
            if not selector.select(_LOOK_AGAIN_S):
                continue
            chunk = os.read(pipe.fileno(), 65_536)
            if not chunk:
                return bytes(printed)
            printed = (printed + chunk)[-_MOST_OUTPUT_BYTES:]
            for percent in _PERCENT.findall(chunk)[-1:]:
                work.on_progress(int(percent))


def _failed(verb: str, code: int, errors: IO[bytes]) -> HostRefused:
    errors.seek(0)
    text = errors.read(_MOST_OUTPUT_BYTES).decode("utf-8", "replace").strip()
    text = "".join(character if character.isprintable() else " " for character in text)[-_SHOWN:]
    message = f"qemu-img {verb} failed ({code}): {text or 'it ran into a limit'}"
    return HostRefused("qemu_img_failed", message, exit_code=code)


def _limited(limits: ToolLimits) -> list[str]:
    resources = [f"--as={_MEMORY_BYTES}", f"--cpu={limits.cpu_s}", "--core=0"]
    # A parent that died before the kernel was told of it sends no signal: looked at afterwards.
    alive = ["sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    dies_with_us = ["setpriv", "--pdeathsig", "KILL", "--", *alive]
    # In this order: entering a namespace forgets whose death it was to follow.
    return [*_without_network(), *dies_with_us, "prlimit", *resources, "--", "nice", "-n", "10"]


@cache
def _without_network() -> tuple[str, ...]:
    """Return the prefix that takes the network away, where the host lets us: files name none."""
    prefix = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--net")
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if tried.returncode == 0 else ()


def _lacks_direct_io(folder: Path) -> bool:
    """Say whether files of a folder (tmpfs, some overlays) cannot be written without a cache."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as probe:
            os.close(os.open(probe.name, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return True
    return False
