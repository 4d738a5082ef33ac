"""What a run of crash tests has come to: operations, faults, and the slowest recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Figures:
    """What was done to one fleet, and how long it took to get over it at worst."""

    operations: int = 0
    unended: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    worst_s: float = 0.0
    worst: str = "nothing"
    rest_s: float = 0.0
    """How long after the last fault under load everything was at rest, at worst."""

    def recovered(self, seconds: float, what: str) -> None:
        """Note how long it took until everything went on after a fault."""
        if seconds > self.worst_s:
            self.worst_s, self.worst = seconds, what


def told(figures: Iterable[Figures]) -> list[str]:
    """Return in words what all fleets of a run have been through, nothing for none."""
    faults: Counter[str] = Counter()
    operations, unended, rest_s, worst = 0, 0, 0.0, Figures()
    for figure in figures:
        operations += figure.operations
        unended += figure.unended
        faults += figure.faults
        rest_s = max(rest_s, figure.rest_s)
        worst = max(worst, figure, key=lambda one: one.worst_s)
    if not faults:
        return []
    kinds = ", ".join(f"{count} {what}" for what, count in faults.most_common())
    lines = [
        f"{operations} operations, {unended or 'none'} of them unended",
        f"{faults.total()} faults injected ({kinds})",
    ]
    if worst.worst_s:
        lines.append(f"worst recovery {worst.worst_s:.1f} s, after {worst.worst}")
    if rest_s:
        lines.append(f"at rest {rest_s:.1f} s after the last fault under load, at worst")
    return lines
