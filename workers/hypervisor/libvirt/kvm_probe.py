"""Whether KVM runs guests here: found out by running one, since a device that opens may hang."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

EMULATOR: Final = "qemu-system-x86_64"
PROBE_S: Final = 20.0
"""A guest that has not reached its first sector after so long never will."""
LEAST_S: Final = 2.0
SLOWER_MOST: Final = 3.0
"""KVM that takes so many times as long as emulation, and more than two seconds, is of no use."""

_EXIT_PORT: Final = 0xF4
_EXIT_VALUE: Final = 0x10
_ENDED: Final = _EXIT_VALUE << 1 | 1
"""The exit code with which QEMU ends when the guest writes `_EXIT_VALUE` to the exit port."""

# mov al, 0x10; out 0xf4, al; hlt; jmp back to hlt. Then what makes a sector one to boot from.
_CODE: Final = bytes([0xB0, _EXIT_VALUE, 0xE6, _EXIT_PORT, 0xF4, 0xEB, 0xFD])
_SECTOR: Final = _CODE.ljust(510, b"\x00") + b"\x55\xaa"


def kvm_runs_guests(emulator: str = EMULATOR) -> bool:
    """Say whether a guest under KVM gets to its first sector, and not later than an emulated one.

    Where the host is a guest itself, KVM may be there, open, start, and be so slow that nothing
    ever comes of it. Costs a tenth of a second on a real host.
    """
    if not Path("/dev/kvm").exists():
        return False
    emulated_s = _boot_s(emulator, "tcg", PROBE_S)
    if emulated_s is None:
        return False
    return _boot_s(emulator, "kvm", max(LEAST_S, SLOWER_MOST * emulated_s)) is not None


def _boot_s(emulator: str, accelerator: str, limit_s: float) -> float | None:
    """Return the seconds to the first sector; None where it is not reached within `limit_s`."""
    with tempfile.NamedTemporaryFile(suffix=".probe") as sector:
        sector.write(_SECTOR)
        sector.flush()
        began = time.monotonic()
        try:
            ended = subprocess.run(
                _command(emulator, sector.name, accelerator),
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
    return time.monotonic() - began if ended.returncode == _ENDED else None


def _command(emulator: str, sector: str, accelerator: str) -> list[str]:
    device = f"isa-debug-exit,iobase={_EXIT_PORT:#x},iosize=0x04"
    drive = f"file={sector},format=raw,if=ide,readonly=off,snapshot=on"
    return [
        *(emulator, "-nodefaults", "-no-user-config", "-display", "none", "-m", "16"),
        *("-machine", "pc", "-accel", accelerator, "-device", device, "-drive", drive),
    ]
