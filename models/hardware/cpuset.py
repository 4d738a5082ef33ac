"""CPU sets as integers: bit n stands for CPU n.

One machine word holds the CPUs of most hosts, so union, difference and counting cost
nanoseconds, values hash and compare by themselves, and no order of insertion exists that
an answer could depend on.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from models.bit_sets import set_bits
from models.errors import Rejected

CpuMask: TypeAlias = int
"""A set of CPU numbers: bit n is set when CPU n is a member. Never negative."""

HIGHEST_CPU: Final = 65_535
"""Highest CPU number accepted from outside; it bounds what one typed line can allocate."""

_DIGITS_AT_MOST: Final = 6
_REMEMBERED_CPUS: Final = 1024
"""Sets of higher CPUs than this are not remembered: a few thousand would fill the memory."""


def mask_of(cpus: Iterable[int]) -> CpuMask:
    """Return the set that holds exactly these CPU numbers (none negative)."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def cpus_of(mask: CpuMask) -> tuple[int, ...]:
    """Return the members of a set as sorted CPU numbers."""
    return tuple(set_bits(mask)) if mask >> _REMEMBERED_CPUS else _remembered_members(mask)


@lru_cache(maxsize=4096)
def _remembered_members(mask: CpuMask) -> tuple[int, ...]:
    """Return the members of a set of ordinary size.

    Remembered, since a fleet has few distinct sets and every answer lists them again.
    """
    return tuple(set_bits(mask))


def first_cpus(mask: CpuMask, how_many: int) -> CpuMask:
    """Return the `how_many` lowest CPUs of a set, or all of it when it holds fewer."""
    rest = mask
    for _ in range(how_many):
        rest &= rest - 1
    return mask ^ rest


def span(first: int, last: int) -> CpuMask:
    """Return the set of all CPUs from first to last, both included."""
    return (1 << (last + 1)) - (1 << first)


def parse_cpu_list(text: str) -> CpuMask:
    """Read a CPU list such as `1-4,^3,6`; exclusions hold wherever they stand in it.

    An empty text, or one that excludes everything, is the empty set. Raises `Rejected`
    (`cpu_list_invalid`) for anything that is no number, range or exclusion.
    """
    included = excluded = 0
    for item in map(str.strip, text.split(",")):
        if not item:
            continue
        if item[0] == "^":
            excluded |= _range_mask(item[1:], item)
        else:
            included |= _range_mask(item, item)
    return included & ~excluded


def format_cpu_list(mask: CpuMask, ranges: bool = True) -> str:
    """Write a CPU set as a sorted list, neighbours joined (`0-3,6`) unless told otherwise."""
    cpus = cpus_of(mask)
    if not ranges:
        return ",".join(map(str, cpus))
    parts = []
    start = previous = -2
    for cpu in cpus:
        if cpu != previous + 1:
            if start >= 0:
                parts.append(_range_text(start, previous))
            start = cpu
        previous = cpu
    if start >= 0:
        parts.append(_range_text(start, previous))
    return ",".join(parts)


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _range_mask(text: str, item: str) -> CpuMask:
    first_text, dash, last_text = text.partition("-")
    first = _cpu_number(first_text, item)
    last = _cpu_number(last_text, item) if dash else first
    if first > last:
        raise _invalid(item, f"{first} comes after {last}")
    return span(first, last)


def _cpu_number(text: str, item: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise _invalid(item, "a CPU list holds numbers, ranges like 1-4 and exclusions like ^3")
    if len(digits) > _DIGITS_AT_MOST or int(digits) > HIGHEST_CPU:
        raise _invalid(item, f"the highest CPU number is {HIGHEST_CPU}")
    return int(digits)


def _invalid(item: str, rule: str) -> Rejected:
    message = f"CPU list item {item[:40]!r} is refused: {rule}"
    return Rejected("cpu_list_invalid", message, value=item[:40])
