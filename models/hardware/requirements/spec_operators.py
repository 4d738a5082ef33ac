"""Conditions in extra specs: a plain value, or an operator and what it is compared with.

One language wherever a flavor compares with what an operator has said of hosts: metadata of
aggregates (`aggregate_instance_extra_specs:NAME`) and capabilities of hosts
(`capabilities:NAME`). The operators are the field's.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from models.errors import Rejected
from models.hardware.requirements.parsing import wrong

_NUMBERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    # In this field a single = is a minimum; == is equality.
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s>=": operator.ge,
    "s<=": operator.le,
    "s>": operator.gt,
    "s<": operator.lt,
}
_OR, _IN, _ALL_IN = "<or>", "<in>", "<all-in>"
OPERATORS: Final = (*_NUMBERS, *_TEXTS, _OR, _IN, _ALL_IN)

_BEGINS: Final = re.compile(r"(<[A-Za-z-]*>|s?[=!<>]+)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """An operator, none for plain equality, and what values are compared with."""

    operator: str
    operands: tuple[str, ...]

    @property
    def negative(self) -> bool:
        """Whether it says what no value may be: then one value that is so breaks it."""
        return self.operator in ("!=", "s!=")

    def holds(self, values: Collection[str]) -> bool:
        """Say whether one of the values meets it; a negative one must be met by them all.

        What is no number meets no condition about numbers. `<in>` looks for a part of a value,
        `<all-in>` for each of its words in any of them.
        """
        if self.operator == _ALL_IN:
            return all(any(word in value for value in values) for word in self.operands)
        if self.negative:
            return bool(values) and all(map(self._meets, values))
        return any(map(self._meets, values))

    def _meets(self, value: str) -> bool:
        if self.operator in _NUMBERS:
            number = _number(value)
            return number is not None and _NUMBERS[self.operator](number, float(self.operands[0]))
        if self.operator in _TEXTS:
            return _TEXTS[self.operator](value, self.operands[0])
        if self.operator == _IN:
            return self.operands[0] in value
        return value in self.operands

    def __str__(self) -> str:
        """Return it in words that follow a name: `of a or b`, `>= 4`."""
        if self.operator in ("", "s==", _OR):
            return f"of {' or '.join(sorted(self.operands))}"
        return f"{self.operator} {' '.join(self.operands)}"


def condition_of(key: str, text: str) -> Condition:
    """Return the condition that an extra spec states; `key` is for the refusal.

    Raises `Rejected` (`extra_spec_invalid`) for an unknown operator, one that lacks what to
    compare with, and a number that is none.
    """
    begun = _BEGINS.fullmatch(text.strip())
    if begun is None:
        if not text.strip():
            raise _invalid(key, text, "a value is missing")
        return Condition("", (text.strip(),))
    name, rest = begun[1], begun[2].strip()
    if name not in OPERATORS:
        raise _invalid(key, text, f"{name} is no operator, they are {', '.join(OPERATORS)}")
    operands = _operands(name, rest)
    if not operands or not all(operands):
        raise _invalid(key, text, f"{name} lacks what to compare with")
    if name in _NUMBERS and _number(operands[0]) is None:
        raise _invalid(key, text, f"{name} compares numbers; s{name.lstrip('s')} compares texts")
    return Condition(name, operands)


def _operands(name: str, rest: str) -> tuple[str, ...]:
    if name == _OR:
        return tuple(part.strip() for part in rest.split(_OR))
    if name == _ALL_IN:
        # Some write the operator again before each word; it means the same.
        return tuple(word for word in rest.split() if word != _ALL_IN)
    return (rest,)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _invalid(key: str, text: str, rule: str) -> Rejected:
    return wrong("extra_spec_invalid", key, text, rule)
