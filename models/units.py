"""Conversions between the units the field uses, so that no bare 1024 appears elsewhere."""

from __future__ import annotations

KIB_PER_MIB = 1024
MIB_PER_GIB = 1024


def mib_to_gib_rounded_up(mib: int) -> int:
    """Return the whole GiB that hold `mib` MiB."""
    return -(-mib // MIB_PER_GIB)


def seconds_text(seconds: float) -> str:
    """Return a duration as a person would say it: `850 ms`, `12.4 s`, `3 min 20 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
