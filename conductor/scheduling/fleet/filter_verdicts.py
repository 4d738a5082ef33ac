"""What a filter returns for all hosts at once, and the record of the hosts that it removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Mask, Numbers
from conductor.scheduling.request.request_spec import RequestSpec

EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Check:
    """Which rows pass one condition; `have` against `need` where it is a matter of amount.

    `lacks` is the predicate of those that do not, for one host and for several, such as
    ("is in another zone", "are in another zone"). `have` is called only with the rows that fail.
    """

    code: str
    lacks: tuple[str, str]
    passed: Mask
    need: int | None = None
    have: Callable[[Numbers], Numbers] | None = None
    unit: str = ""


Filter: TypeAlias = Callable[[RequestSpec, Fleet], Iterable[Check]]
"""A filter is a plain function: the checks that a request spec makes of a fleet."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How many hosts one check removed, a few of them, and the one that was nearest."""

    code: str
    lacks: tuple[str, str]
    hosts: int
    examples: tuple[str, ...] = ()
    need: int | None = None
    have: int | None = None
    nearest: str | None = None
    unit: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the removal as kept in decisions, without numbers that are not known."""
        counted = {"need": self.need, "have": self.have, "nearest": self.nearest}
        return {
            "check": self.code,
            "text": str(self),
            "hosts": self.hosts,
            "examples": list(self.examples),
            **{key: value for key, value in counted.items() if value is not None},
        }

    def __str__(self) -> str:
        text = f"{self.hosts:,} {self.lacks[self.hosts != 1]}"
        if self.need is None:
            return text
        unit = f" {self.unit}" if self.unit else ""
        best = "" if self.have is None else f", best {self.have:,}{unit} on {self.nearest}"
        return f"{text} (need {self.need:,}{unit}{best})"


def nearest_of(removals: Iterable[Removal]) -> dict[str, Any] | None:
    """Return the host that lacked least, as a share of what was needed, with need and have."""
    counted = [
        (removal.have / removal.need, removal)
        for removal in removals
        if removal.nearest is not None and removal.need and removal.have is not None
    ]
    if not counted:
        return None
    _, best = max(counted, key=lambda pair: pair[0])
    return {"host": best.nearest, "check": best.code, "need": best.need, "have": best.have}


def sentence(hosts: int, removals: Iterable[Removal]) -> str:
    """Return why no host of so many remains, in one line, the commonest reason first."""
    if not hosts:
        return "no host is known"
    ordered = sorted(removals, key=lambda removal: -removal.hosts)
    known = "1 host" if hosts == 1 else f"{hosts:,} hosts"
    return f"{known}: " + ", ".join(map(str, ordered))
