"""Services that crash while every kind of operation is under way, and what came of it."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from conductor.operations.waits import is_ask
from tests.acceptance.fleet import Fleet
from tests.acceptance.private_services import PrivateServices
from tests.acceptance.trips import TRIPS, Leg, Traveller
from tests.operations.audit import check_at_any_time

Progress = tuple[tuple[str, int], ...]
END_S = 120.0
LOSES_ITS_HOST = "evacuate"


class Outages:
    """Crashes Redis, PostgreSQL and RabbitMQ in turn; `met` counts which operations met which."""

    def __init__(self, fleet: Fleet, private: PrivateServices) -> None:
        self.met: Counter[tuple[str, str]] = Counter()
        self.places: set[tuple[str, str, str]] = set()
        self._fleet = fleet
        self._crashes = {
            "Redis": private.crash_redis,
            "PostgreSQL": private.crash_database,
            "RabbitMQ": private.crash_broker,
        }

    def strike(self, kinds: Mapping[str, str], first: int) -> None:
        """Crash a service, beginning with the `first`, whenever all living operations are out.

        Out is who waits for a host or the scheduler, for something new since the last crash.
        `kinds` are operations by id. Returns when all have ended.
        """
        seen: dict[str, Progress] = {}
        service, up_at = "", time.monotonic()
        for following in itertools.islice(itertools.cycle(self._crashes), first, None):
            seen = self.wait_out(kinds, seen)
            if service:
                self._fleet.figures.recovered(time.monotonic() - up_at, f"a crash of {service}")
            if not seen:
                return
            service = following
            self.crash(service, {id_: kinds[id_] for id_ in seen})
            up_at = time.monotonic()
            check_at_any_time(self._fleet)

    def crash(self, service: str, kinds: Mapping[str, str]) -> None:
        """Crash one service in the middle of these operations, and return when it is back."""
        with self._fleet.store.read() as uow:
            for id_, kind in kinds.items():
                self.met[kind, service] += 1
                trees = uow.operations.where(root_id=id_, ended_at=None)
                self.places |= {(each.kind, each.step, service) for each in trees}
        self._crashes[service]()
        self._fleet.figures.faults[f"{service} crashed"] += 1

    def wait_out(self, ids: Iterable[str], seen: Mapping[str, Progress]) -> dict[str, Progress]:
        """Return how far the living operations are, once each is out for something new."""
        found: dict[str, Progress] = {}

        def look() -> bool:
            found.clear()
            with self._fleet.store.read() as uow:
                for id_ in ids:
                    tree = uow.operations.where(root_id=id_, ended_at=None)
                    record = uow.operations.get(id_)
                    if record is not None and record.state.ended:
                        continue
                    out = any(is_ask(each.waiting_on) for each in tree)
                    progress = tuple(sorted((each.id, each.sequence) for each in tree))
                    if not out or progress == seen.get(id_):
                        return False
                    found[id_] = progress
            return True

        self._fleet.until(look, "all living operations to be out for something new", END_S)
        return found


def travellers_of(
    fleet: Fleet, homes: list[str], lost: str, trips: Mapping[str, list[Leg]] = TRIPS
) -> list[Traveller]:
    """Return one traveller a trip, between hosts of `homes`; `lost` is for who loses its host."""
    towards = itertools.cycle(zip(homes, [*homes[1:], homes[0]], strict=True))
    travellers = []
    for trip, legs in trips.items():
        home, target = next(towards)
        travellers.append(
            Traveller(fleet, legs, lost if trip.startswith(LOSES_ITS_HOST) else home, target)
        )
    return travellers


def go_together(
    fleet: Fleet,
    travellers: list[Traveller],
    number: int,
    outages: Outages | None = None,
    first: int = 0,
) -> None:
    """Take everybody through one leg, side by side, and through the outages."""
    for each in travellers:
        each.prepare(number)
    for each in travellers:
        each.ask(number)
    if outages is not None:
        outages.strike({t.ids[number]: t.legs[number].task for t in travellers}, first)
    for each in travellers:
        each.check(number, fleet.ended(each.ids[number], END_S))


def fly(
    fleet: Fleet, travellers: list[Traveller], outages: Outages | None = None, first: int = 0
) -> None:
    """Take everybody on their trips, leg by leg; the `first` outage of each leg is this one."""
    for number in range(max(len(traveller.legs) for traveller in travellers)):
        flying = [each for each in travellers if number < len(each.legs)]
        go_together(fleet, flying, number, outages, first)
