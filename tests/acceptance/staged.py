"""Every kind of operation in the middle at the same time: out at hosts that do not move."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from conductor.operations.engine.wait_reasons import is_dispatch
from tests.acceptance.fleet import Fleet
from tests.acceptance.trips import END_S, TRIPS, Traveller, go_together, travellers_of
from tests.operations.audit import check_at_any_time, check_at_rest

Progress = tuple[tuple[str, int], ...]


class Staged:
    """A traveller for every kind of operation, arrived where that is the next to ask."""

    def __init__(self, fleet: Fleet, homes: Sequence[str], lost: str) -> None:
        self._fleet = fleet
        stages = {
            f"{trip} {number}": (legs, number)
            for trip, legs in TRIPS.items()
            for number in range(1, len(legs) + 1)
        }
        stages |= {"build": ([], 0), "delete": ([], 1)}
        trips = {name: legs for name, (legs, _) in stages.items()}
        self.travellers = travellers_of(fleet, homes, lost, trips)
        numbers = [number for _, number in stages.values()]
        self._staged = list(zip(self.travellers, numbers, strict=True))
        self.kinds = {t.ids[number]: t.legs[number].task for t, number in self._staged}
        for leg in range(max(numbers)):
            go_together(fleet, [t for t, number in self._staged if leg < number], leg)

    def hold_in_the_middle(self) -> None:
        """Ask for all of them, and return when each is out; no worker moves from here on."""
        for traveller, number in self._staged:
            traveller.prepare(number)
        for host in self._fleet.hosts:
            self._fleet.members[f"compute-{host}"].freeze()
        for traveller, number in self._staged:
            traveller.ask(number)
        out = wait_out(self._fleet, self.kinds, {})
        assert set(out) == set(self.kinds)

    def check_all_end(self, up_at: float, fault: str) -> None:
        """All succeed and everybody goes on to the end: nothing is lost, nothing done twice."""
        fleet = self._fleet
        for traveller, number in self._staged:
            traveller.check(number, fleet.ended(traveller.ids[number]))
            check_at_any_time(fleet)
        fleet.figures.recovered(time.monotonic() - up_at, fault)
        for leg in range(1, max(len(traveller.legs) for traveller in self.travellers)):
            left = [t for t, number in self._staged if number < leg < len(t.legs)]
            go_together(fleet, left, leg)
        fleet.settle()
        check_at_rest(fleet)
        check_done_once(self.travellers)
        check_all_shown(fleet, self.travellers)


def wait_out(fleet: Fleet, ids: Iterable[str], seen: Mapping[str, Progress]) -> dict[str, Progress]:
    """Return how far the living operations are, once each is out for something new."""
    found: dict[str, Progress] = {}

    def look() -> bool:
        found.clear()
        with fleet.store.read() as uow:
            for id_ in ids:
                tree = uow.operations.where(root_id=id_, ended_at=None)
                record = uow.operations.get(id_)
                if record is not None and record.state.ended:
                    continue
                out = any(is_dispatch(operation.waiting_on) for operation in tree)
                progress = tuple(sorted((operation.id, operation.sequence) for operation in tree))
                if not out or progress == seen.get(id_):
                    return False
                found[id_] = progress
        return True

    fleet.until(look, "all living operations to be out for something new", END_S)
    return found


def check_done_once(travellers: Iterable[Traveller]) -> None:
    """Whoever took the same trip had the same done by the hypervisors, struck here or there."""
    effects: dict[tuple[str, ...], Counter[str]] = {}
    for traveller in travellers:
        trip = tuple(leg.task for leg in traveller.legs)
        assert effects.setdefault(trip, traveller.effects()) == traveller.effects(), trip


def check_all_shown(fleet: Fleet, travellers: Iterable[Traveller]) -> None:
    """Whoever waits for a result of Celery's gets it, though Redis has lost all it held."""
    for id_ in itertools.chain.from_iterable(traveller.ids for traveller in travellers):
        shown = partial(fleet.sender.state, id_)
        fleet.until(lambda shown=shown: shown() == "SUCCESS", f"the result of {id_}", 30)
