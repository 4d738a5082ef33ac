"""Reading extra specs and image properties: what is written where, and how values are spelt."""

from collections.abc import Collection
from typing import Final

from models.errors import Rejected
from models.hardware import CpuMask, Flavor, Image, parse_cpu_list

_TRUE: Final = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE: Final = frozenset({"0", "f", "false", "off", "n", "no"})
_DIGITS_AT_MOST: Final = 18


def values_of(
    name: str, flavor: Flavor, image: Image, prefix: str = "hw"
) -> tuple[str | None, object]:
    """Return the values in flavor (`hw:name`) and image (`hw_name`), None where absent."""
    return flavor.extra_specs.get(f"{prefix}:{name}"), image.properties.get(f"{prefix}_{name}")


def agreed_flag(name: str, flavor: Flavor, image: Image) -> bool | None:
    """Return a boolean requirement, None where neither sets it; the two must agree."""
    ours, theirs = values_of(name, flavor, image)
    if ours is None or theirs is None:
        value = theirs if ours is None else ours
        return None if value is None else flag(value)
    if flag(ours) != flag(theirs):
        raise wrong(f"{name}_conflict", f"hw:{name}", ours, f"the image says {theirs!s:.40}")
    return flag(ours)


def agreed_choice(
    name: str, allowed: Collection[str], flavor: Flavor, image: Image, prefix: str = "hw"
) -> str | None:
    """Return one of a fixed choice of values, None where neither sets it; the two must agree.

    An image's value outside the choice is refused even where nobody would use it.
    """
    ours, theirs = values_of(name, flavor, image, prefix)
    policy = image_choice(f"{prefix}_{name}", allowed, image) if theirs is not None else None
    if not ours:
        return policy
    one_of(ours, allowed, f"{name}_invalid", f"{prefix}:{name}")
    if policy and policy != ours:
        raise wrong(f"{name}_conflict", f"{prefix}:{name}", ours, f"the image says {policy}")
    return ours


def image_choice(key: str, allowed: Collection[str], image: Image) -> str | None:
    """Return an image property with a fixed choice of values, None when it is not set."""
    value = image.properties.get(key)
    if value is None:
        return None
    return one_of(value, allowed, f"{key.partition('_')[2]}_invalid", key)


def flag(value: object) -> bool:
    """Return a yes-or-no value; the usual spellings of yes count, all else is no."""
    return value is True or str(value).strip().lower() in _TRUE


def is_yes_or_no(value: object) -> bool:
    """Say whether a value is a spelling of yes or of no."""
    return str(value).strip().lower() in _TRUE | _FALSE


def one_of(value: object, allowed: Collection[str], code: str, key: str) -> str:
    """Return the value when it is one of the allowed, else raise `Rejected`."""
    text = str(value) if isinstance(value, float) else value  # an unquoted TPM version
    if isinstance(text, str) and text in allowed:
        return text
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
