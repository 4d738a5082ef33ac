"""How a guest's memory is to be backed: page size, locking, persistent memory."""

import re
from typing import Final

from models.errors import Rejected
from models.hardware.flavor import Flavor
from models.hardware.guest import ANY_PAGES, LARGE_PAGES, SMALL_PAGES
from models.hardware.image import Image
from models.hardware.wording import asked, flag, wrong

_NAMED: Final = {"small": SMALL_PAGES, "large": LARGE_PAGES, "any": ANY_PAGES}
_SIZE: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,6}))?(?:([KMGT])i?)?(B|b|bit)", re.ASCII)
_POWER: Final = {None: 0, "K": 1, "M": 2, "G": 3, "T": 4}


def page_size(flavor: Flavor, image: Image) -> int | None:
    """Return the page size asked for: KiB, or SMALL_, LARGE_, ANY_PAGES; None for nothing.

    An image may choose only where the flavor leaves the choice: large or any.
    """
    ours, theirs = asked("mem_page_size", flavor, image)
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
    """Return whether guest memory is locked, None when nobody says; locking needs a page size."""
    ours, theirs = asked("locked_memory", flavor, image)
    if ours is not None and theirs is not None and flag(ours) != flag(theirs):
        rule = f"the image says {theirs}"
        raise wrong("locked_memory_conflict", "hw:locked_memory", ours, rule)
    said = ours if ours is not None else theirs
    if said is None:
        return None
    if flag(said) and not any(asked("mem_page_size", flavor, image)):
        key = "hw:locked_memory" if ours is not None else "hw_locked_memory"
        rule = "locked memory needs a page size"
        raise wrong("locked_memory_needs_page_size", key, said, rule)
    return flag(said)


def vpmem_labels(flavor: Flavor) -> tuple[str, ...]:
    """Return the labels of the virtual persistent memory asked for, in the order written."""
    labels = flavor.extra_specs.get("hw:pmem", "").split(",")
    return tuple(filter(None, map(str.strip, labels)))


def _size_kib(text: str, key: str) -> int:
    """Return a page size in KiB: bare digits are KiB, else a unit such as MB or GiB follows."""
    named = _NAMED.get(text)
    if named is not None:
        return named
    size = int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else _sized(text)
    if size is None or size < 1:
        raise _invalid(text, key)
    return size


def _sized(text: str) -> int | None:
    """Return the KiB that a number with a unit means, None unless they are whole."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    whole, fraction, prefix, unit = match.groups()
    fraction = fraction or ""
    amount = int(whole + fraction) * 1024 ** _POWER[prefix]
    scale = 10 ** len(fraction) * 1024 * (1 if unit == "B" else 8)
    kib, rest = divmod(amount, scale)
    return None if rest else kib


def _invalid(text: str, key: str) -> Rejected:
    rule = "it must be small, large, any, or a size of whole KiB such as 2048, 2MB or 1GiB"
    return wrong("mem_page_size_invalid", key, text, rule)
