"""Services that crash while every kind of operation is under way, and what came of it."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from tests.acceptance.fleet import Fleet
from tests.acceptance.private_services import PrivateServices
from tests.acceptance.staged import Progress, wait_out
from tests.acceptance.trips import Traveller, go_together
from tests.operations.audit import check_at_any_time

SERVICES = ("Redis", "PostgreSQL", "RabbitMQ")


class Outages:
    """Crashes Redis, PostgreSQL and RabbitMQ in turn; `met` counts which operations met which."""

    def __init__(self, fleet: Fleet, private: PrivateServices) -> None:
        self.met: Counter[tuple[str, str]] = Counter()
        self.places: set[tuple[str, str, str]] = set()
        self._fleet = fleet
        crashes = (private.crash_redis, private.crash_database, private.crash_broker)
        self._crashes = dict(zip(SERVICES, crashes, strict=True))

    def strike(self, kinds: Mapping[str, str], first: int) -> None:
        """Crash a service, beginning with the `first`, whenever all living operations are out.

        Out is who waits for a host or the scheduler, for something new since the last crash.
        `kinds` are operations by id. Returns when all have ended.
        """
        seen: dict[str, Progress] = {}
        service, up_at = "", time.monotonic()
        for following in itertools.islice(itertools.cycle(self._crashes), first, None):
            seen = wait_out(self._fleet, kinds, seen)
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
                self.places |= {(tree.kind, tree.step, service) for tree in trees}
        self._crashes[service]()
        self._fleet.figures.faults[f"{service} crashed"] += 1


def fly(
    fleet: Fleet, travellers: list[Traveller], outages: Outages | None = None, first: int = 0
) -> None:
    """Take everybody on their trips, leg by leg; the `first` outage of each leg is this one."""
    for number in range(max(len(traveller.legs) for traveller in travellers)):
        flying = [item for item in travellers if number < len(item.legs)]
        strike = partial(outages.strike, first=first) if outages else None
        go_together(fleet, flying, number, strike)
