"""How a guest's memory is to be backed: page size, locking, persistent memory."""

import re
from typing import Final

from models.hardware import ANY_PAGES, LARGE_PAGES, SMALL_PAGES, Flavor, Image
from models.hardware.requirements.parsing import agreed_flag, values_of, wrong

_NAMED: Final = {"small": SMALL_PAGES, "large": LARGE_PAGES, "any": ANY_PAGES}
_SIZE: Final = re.compile(
    r"(?=\.?\d)(\d{0,12})(?:\.(\d{1,6}))?(?:([KMGTPE])i?)?(B|b|bit)", re.ASCII
)
_DIGITS_AT_MOST: Final = 12
_POWER: Final = {None: 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def page_size(flavor: Flavor, image: Image) -> int | None:
    """Return the required page size: KiB, or SMALL_, LARGE_, ANY_PAGES; None for nothing.

    An image may choose only where the flavor leaves the choice: large or any.
    """
    ours, theirs = values_of("mem_page_size", flavor, image)
    if not ours:
        if theirs:
            rule = "an image may choose only where the flavor says large or any"
            raise wrong("mem_page_size_forbidden", "hw_mem_page_size", theirs, rule)
        return None
    size = _size_kib(ours, "hw:mem_page_size")
    if not theirs:
        return size
    if size not in (LARGE_PAGES, ANY_PAGES):
        rule = f"it leaves no choice, but the image chooses {theirs}"
        raise wrong("mem_page_size_forbidden", "hw:mem_page_size", ours, rule)
    return _size_kib(str(theirs), "hw_mem_page_size")


def locked_memory(flavor: Flavor, image: Image) -> bool | None:
    """Return whether guest memory is locked, None where unset; locking needs a page size."""
    locked = agreed_flag("locked_memory", flavor, image)
    if locked and not any(values_of("mem_page_size", flavor, image)):
        ours, theirs = values_of("locked_memory", flavor, image)
        key, value = ("hw_locked_memory", theirs) if ours is None else ("hw:locked_memory", ours)
        raise wrong("locked_memory_needs_page_size", key, value, "locked memory needs a page size")
    return locked


def vpmem_labels(flavor: Flavor) -> tuple[str, ...]:
    """Return the labels of the virtual persistent memory required, in the order written."""
    labels = flavor.extra_specs.get("hw:pmem", "").split(",")
    return tuple(filter(None, map(str.strip, labels)))


def size_in_kib(text: str) -> int | None:
    """Return a size in whole KiB of at least one, None for what is no such size.

    Bare digits are KiB, else a unit follows: 2MB and 2MiB are both 2048.
    """
    digits = text.strip()
    if digits.isascii() and digits.isdigit():
        return int(digits) or None if len(digits) <= _DIGITS_AT_MOST else None
    match = _SIZE.fullmatch(digits)
    if match is None:
        return None
    whole, fraction, prefix, unit = match.groups()
    fraction = fraction or ""
    amount = int(f"{whole}{fraction}") * 1024 ** _POWER[prefix]
    scale = 10 ** len(fraction) * 1024 * (1 if unit == "B" else 8)
    kib, rest = divmod(amount, scale)
    return None if rest else kib or None


def _size_kib(text: str, key: str) -> int:
    size = _NAMED.get(text) or size_in_kib(text)
    if size is None:
        rule = "it must be small, large, any, or a size of whole KiB such as 2048, 2MB or 1GiB"
        raise wrong("mem_page_size_invalid", key, text, rule)
    return size
