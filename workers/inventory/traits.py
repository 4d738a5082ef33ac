"""The traits that a host tells of itself: standard names of the field, or `CUSTOM_…`."""

from __future__ import annotations

import re
from typing import Any, Final

import os_traits

from models.errors import Rejected

_CUSTOM: Final = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_STANDARD: Final = frozenset(map(str, os_traits.get_traits()))


def traits_of(names: Any) -> tuple[str, ...]:
    """Return a host's traits, each once; raise `Rejected` naming the first that cannot be one."""
    if not (isinstance(names, (list, tuple)) and all(isinstance(item, str) for item in names)):
        raise Rejected("field_invalid", "traits is no list of names", key="traits")
    for name in names:
        if name not in _STANDARD and not _CUSTOM.fullmatch(name):
            rule = "a standard trait, or CUSTOM_ and capitals, digits, _"
            raise Rejected("trait_unknown", f"traits has {name[:60]!r}: {rule}", key="traits")
    return tuple(dict.fromkeys(names))
