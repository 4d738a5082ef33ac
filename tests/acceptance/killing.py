"""Killing the process that brings an operation to a chosen moment, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from conductor.store import OperationRecord
from tests.acceptance.fleet import Fleet
from tests.acceptance.stops import Moment
from tests.operations.audit import check_at_any_time


@dataclass(frozen=True)
class Death:
    """One kill: where, of whom, and how long after it the operation had ended."""

    moment: str
    member: str
    recovery_s: float

    def __str__(self) -> str:
        return f"{self.recovery_s:5.2f} s  {self.member:14} {self.moment}"


class Killer:
    """Kills at moments of journeys, one kill an operation.

    `committed` is whether the transactions in which they die count. `also` names somebody who
    dies in the same moment. `alone` leaves nobody of the victim's role to take over.
    """

    def __init__(
        self,
        fleet: Fleet,
        also: Callable[[], str] | None = None,
        *,
        committed: bool = True,
        alone: bool = False,
    ) -> None:
        self.fleet = fleet
        self.committed = committed
        self.deaths: list[Death] = []
        self.survivors: dict[str, str] = {}
        self._also = also
        self._alone = alone

    def at(self, id_: str, moment: Moment, ask: Callable[[], object]) -> OperationRecord:
        """Kill whoever brings operation `id_` to `moment`, once asked; return how it ended."""
        stops = self.fleet.stops
        # Whole again, so that what is measured is the recovery and not the start of a process.
        self.fleet.start()
        number = stops.put(id_, moment.text)
        ask()
        hit = stops.wait_hit(number)
        dying = [hit.writer, *self._others(hit.writer)]
        for name in dying:
            self.fleet.members[name].kill()
        self.fleet.figures.faults["others killed with them"] += len(dying) - 1
        died_at = time.monotonic()
        if self.committed:
            stops.go_on(number, hit)
        else:
            stops.break_off(number, hit)
        for name in dying:
            self.fleet.members[name].start()
        check_at_any_time(self.fleet)
        record = self.fleet.ended(id_)
        self.survivors[id_] = f"an operation that met a death at {moment}"
        when = "after" if self.committed else "before"
        self.note(f"{when} the commit of {moment}", hit.writer, died_at)
        return record

    def _others(self, victim: str) -> list[str]:
        role = victim.partition("-")[0]
        others = [n for n in self.fleet.members if n.startswith(role) and self._alone]
        if self._also is not None:
            others.append(self._also())
        return [name for name in others if name != victim]

    def note(self, moment: str, member: str, died_at: float) -> None:
        """Remember a death from which everything has recovered just now."""
        death = Death(moment, member, time.monotonic() - died_at)
        self.deaths.append(death)
        self.fleet.figures.faults[f"{member.partition('-')[0]} killed"] += 1
        self.fleet.figures.recovered(death.recovery_s, f"a death of {member} {moment}")

    @property
    def worst_s(self) -> float:
        """The slowest recovery."""
        return max(death.recovery_s for death in self.deaths)

    def report(self) -> str:
        """Return the figures in words, the slowest recoveries first."""
        slowest = sorted(self.deaths, key=lambda death: -death.recovery_s)[:8]
        return "\n".join([f"{len(self.deaths)} kills, the slowest recoveries:", *map(str, slowest)])
