"""Candidates and a claim a second: a published OpenStack Placement server, and our own placement.

The same 1,000 providers, request and limit, in one run, turn about, so that a busy machine slows
both. The server is given its best: SQLite and PostgreSQL, one client and four threads of them;
ours is one client on PostgreSQL. Each unit of work asks for candidates and claims one of them,
drawn by chance.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

import pytest

from conductor.placement.http.http_client import PlacementClient, Question
from conductor.placement.http.http_placement import HttpPlacement
from conductor.placement.http.serialization import inventories_json
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import PlacementService
from conductor.placement.providers import Consumer
from conductor.placement.request_groups import CandidateRequest, RequestGroup
from conductor.store import Inventory
from conductor.store.open_store import open_store
from models.tables.schema_upgrade import upgrade
from tests.benchmarks.report import Figure, report
from tests.environment import placement as environment

PROVIDERS, BATCH, CLIENTS = 1_000, 100, 4
ROUNDS, MEASURED, OURS_MEASURED = 6, 4, 60
LIMITS = (10, 1_000)
"""A scheduler that wants a few alternates, and as many as the field's scheduler asks for."""

ROOM = {
    "VCPU": Inventory(64, 0, 16.0),
    "MEMORY_MB": Inventory(262_144),
    "DISK_GB": Inventory(8_000),
}
REQUEST = CandidateRequest(
    (RequestGroup(resources={"VCPU": 2, "MEMORY_MB": 2_048, "DISK_GB": 20}),)
)


Claiming = Callable[[int], None]
"""Asks for so many candidates, and claims one of them."""


@dataclass
class Contender:
    """One way to do the work, and how long it took so far."""

    name: str
    limit: int
    clients: int
    claim: Claiming
    count: int
    done: int = 0
    took_s: float = 0.0

    def go(self) -> None:
        """Do one round."""
        with ThreadPoolExecutor(self.clients) as pool:
            began = time.perf_counter()
            list(pool.map(lambda _: self.claim(self.limit), range(self.count)))
            self.took_s += time.perf_counter() - began
        self.done += self.count

    @property
    def rate(self) -> float:
        return self.done / self.took_s


@pytest.mark.timeout(900)
def test_candidates_and_a_claim_beside_a_published_server(
    fresh_database: Callable[[], str],
) -> None:
    with (
        _server("") as sqlite,
        _server(fresh_database()) as postgresql,
        _ours(fresh_database()) as own,
    ):
        theirs = [
            Contender(f"server on {name}", limit, clients, claim, MEASURED)
            for (name, claim), limit, clients in product(
                (("SQLite", sqlite), ("PostgreSQL", postgresql)), LIMITS, (1, CLIENTS)
            )
        ]
        ours = [Contender("ours on PostgreSQL", limit, 1, own, OURS_MEASURED) for limit in LIMITS]
        for contender in (*theirs, *ours):
            contender.claim(contender.limit)
        for _ in range(ROUNDS):
            for contender in (*theirs, *ours):
                contender.go()
    figures = [*map(_figure, theirs)]
    for contender in ours:
        same = [other for other in theirs if other.limit == contender.limit]
        alone = contender.rate / max(other.rate for other in same if other.clients == 1)
        best = contender.rate / max(other.rate for other in same)
        limit = f"limit {contender.limit:,}"
        figures += [
            _figure(contender),
            Figure(f"ours / server, 1 client each, {limit}", alone, "times", "≥ 50"),
            Figure(f"ours with 1 client / server's best, {limit}", best, "times"),
        ]
    report("placement_server", figures)
    assert all(figure.value > 0 for figure in figures)


def _figure(of: Contender) -> Figure:
    return Figure(f"{of.name}, {_clients(of.clients)}, limit {of.limit:,}", of.rate, "claims/s")


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


@contextmanager
def _server(database: str) -> Iterator[Claiming]:
    with (
        environment.server(database) as server,
        closing(PlacementClient(server.url.replace("://", "://admin@"))) as client,
    ):
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(partial(_post, client), range(PROVIDERS)))
        yield partial(_claimed, HttpPlacement(client))


@contextmanager
def _ours(url: str) -> Iterator[Claiming]:
    upgrade(url)
    with closing(open_store(url)) as store:
        for first in range(0, PROVIDERS, BATCH):
            with store.begin() as uow:
                for number in range(first, first + BATCH):
                    _make(StorePlacement(uow), number)
        provider_index = ProviderIndex()

        def claim(limit: int) -> None:
            with store.begin() as uow:
                _claimed(StorePlacement(uow, provider_index), limit)

        yield claim


def _make(placement: PlacementService, number: int) -> None:
    made = placement.ensure_provider(str(uuid.uuid4()), f"host-{number:04}")
    placement.set_inventories(made.id, ROOM, made.generation)


def _post(client: PlacementClient, number: int) -> None:
    # By hand: the adapter would also read each provider back.
    provider_id = str(uuid.uuid4())
    made = {"uuid": provider_id, "name": f"host-{number:04}"}
    client.send(Question("POST", "/resource_providers", (), made))
    has = {"resource_provider_generation": 0, "inventories": inventories_json(ROOM)}
    path = f"/resource_providers/{provider_id}/inventories"
    assert client.send(Question("PUT", path, (), has)).status == 200


def _claimed(placement: PlacementService, limit: int) -> None:
    chosen = random.choice(placement.candidates(REQUEST, limit).found)
    placement.write([Consumer(str(uuid.uuid4()), chosen.allocations, "project", "user")])
