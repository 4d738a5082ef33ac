"""Faults that a test injects into a fleet from outside, each counted."""

from __future__ import annotations

import random
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable
from urllib.parse import urlsplit

import redis

from tests.acceptance.fleet import Fleet
from tests.limits import limit_s

CONTROL_S = 60


class Faults:
    """Kills processes and connections of one fleet; nobody else on the services notices."""

    def __init__(
        self,
        fleet: Fleet,
        broker_control: str,
        chance: random.Random,
        injected: tuple[str, ...] = (),
    ) -> None:
        """`injected` are the `--habit` options of a compute worker from its first death on."""
        self.fleet = fleet
        self._fault_options = tuple(word for one in injected for word in ("--habit", one))
        self.injected: Counter[str] = Counter()
        self._control = shlex.split(broker_control)
        self._vhost = urlsplit(fleet.services.broker_url).path.lstrip("/")
        self._chance = chance

    def kill_a_member(self) -> None:
        """SIGKILL somebody and start the next life at once."""
        member = self._chance.choice(list(self.fleet.members.values()))
        self.injected[f"{member.name.partition('-')[0]} killed"] += 1
        self.fleet.restart(member.name, *self._more(member.name))

    def kill_two_members(self) -> None:
        """SIGKILL two at the same moment, and start both again."""
        pair = self._chance.sample(list(self.fleet.members.values()), 2)
        for member in pair:
            member.kill()
        for member in pair:
            member.start(*self._more(member.name))
        self.injected["pairs killed"] += 1

    def close_connections(self) -> None:
        """Close every connection to the broker's vhost from the broker's side."""
        self.control("close_all_connections", "-p", self._vhost, "chaos")
        self.injected["vhost's connections closed"] += 1

    def close_a_connection(self) -> None:
        """Close one connection to the broker's vhost."""
        lines = self.control("list_connections", "pid", "vhost").splitlines()
        pids = [line.split("\t")[0] for line in lines if line.endswith(f"\t{self._vhost}")]
        if pids:
            self.control("close_connection", self._chance.choice(pids), "chaos")
            self.injected["broker connections closed"] += 1

    def terminate_a_backend(self) -> None:
        """End one session of this database, whatever it is in the middle of."""
        backends = self._backends()
        if backends:
            self.fleet.stops.terminate([self._chance.choice(backends)])
            self.injected["database sessions ended"] += 1

    def terminate_all_backends(self) -> None:
        """End every session of this database."""
        self.fleet.stops.terminate(self._backends())
        self.injected["all database sessions ended"] += 1

    def kill_redis_clients(self) -> None:
        """Close every connection to this run's Redis database."""
        url = self.fleet.services.result_url
        number = urlsplit(url).path.lstrip("/")
        with redis.Redis.from_url(url) as link:
            mine = link.client_id()
            for client in link.client_list():
                if client["db"] == number and int(client["id"]) != mine:
                    link.client_kill_filter(_id=client["id"])
        self.injected["Redis connections closed"] += 1

    def any(self) -> Callable[[], None]:
        """Return a fault: mostly deaths, now and then a connection."""
        faults = {
            self.kill_a_member: 10,
            self.kill_two_members: 3,
            self.close_connections: 1,
            self.close_a_connection: 3,
            self.terminate_a_backend: 3,
            self.terminate_all_backends: 1,
            self.kill_redis_clients: 2,
        }
        return self._chance.choices(list(faults), list(faults.values()))[0]

    def _more(self, name: str) -> tuple[str, ...]:
        return self._fault_options if name.startswith("compute") else ()

    def _backends(self) -> list[int]:
        """Return the sessions of the fleet's processes; the test has its own."""
        members = self.fleet.members
        return [pid for pid, name in self.fleet.stops.backends().items() if name in members]

    def control(self, *words: str) -> str:
        """Run the broker's own control command."""
        done = subprocess.run(
            [*self._control, "-q", *words],
            capture_output=True,
            text=True,
            timeout=limit_s(CONTROL_S),
            check=True,
        )
        return done.stdout
