"""Reading extra specs and image properties: what is written where, and how values are spelt."""

from collections.abc import Collection
from typing import Final

from models.errors import Rejected
from models.hardware.cpuset import CpuMask, parse_cpu_list
from models.hardware.flavor import Flavor
from models.hardware.image import Image

_TRUE: Final = frozenset({"1", "t", "true", "on", "y", "yes"})
_DIGITS_AT_MOST: Final = 18


def asked(name: str, flavor: Flavor, image: Image) -> tuple[str | None, object]:
    """Return what flavor (`hw:name`) and image (`hw_name`) say, None for nothing."""
    return flavor.extra_specs.get(f"hw:{name}"), image.properties.get(f"hw_{name}")


def flag(value: object) -> bool:
    """Return a yes-or-no value; the usual spellings of yes count, all else is no."""
    return value is True or str(value).strip().lower() in _TRUE


def one_of(value: object, allowed: Collection[str], code: str, key: str) -> str:
    """Return the value when it is one of the allowed, else raise `Rejected`."""
    if isinstance(value, str) and value in allowed:
        return value
    choices = ", ".join(sorted(allowed))
    raise wrong(code, key, value, f"it must be one of {choices}")


def whole_number(value: object, code: str, key: str, least: int = 0) -> int:
    """Return a whole number written as digits, or given as one; raise `Rejected` otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        digits = value.strip() if isinstance(value, str) else ""
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_AT_MOST):
            raise wrong(code, key, value, f"it must be a whole number of at least {least}")
        number = int(digits)
    if number < least:
        raise wrong(code, key, value, f"it must be at least {least}")
    return number


def cpu_list(value: object, code: str, key: str) -> CpuMask:
    """Return the CPUs of a list in text form; raise `Rejected` naming the key otherwise."""
    try:
        return parse_cpu_list(str(value))
    except Rejected as error:
        raise wrong(code, key, value, error.message) from error


def wrong(code: str, key: str, value: object, rule: str) -> Rejected:
    """Return the rejection that names field, value and rule in one line."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return Rejected(code, f"{key} is {shown}: {rule}", key=key)
