"""Candidates and a claim a second: a published OpenStack Placement server, and our own placement.

The same 1,000 providers, request and limit, in one run. The server is given its best: SQLite and
PostgreSQL, one client and four, without the client's own retries in its way; ours is one client on
PostgreSQL. Each unit of work asks for candidates and claims one of them, drawn by chance.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import product

import pytest

from conductor.placement.forest import Forest
from conductor.placement.http_client import PlacementClient
from conductor.placement.http_placement import HttpPlacement
from conductor.placement.ports import PlacementService
from conductor.placement.providers import Consumer
from conductor.placement.requests import CandidateRequest, RequestGroup
from conductor.placement.store_placement import StorePlacement
from conductor.store.open import open_store
from conductor.store.records import Inventory
from models.tables.upgrade import upgrade
from tests.benchmarks.report import Figure, report
from tests.environment import placement as environment

PROVIDERS, BATCH, CLIENTS = 1_000, 100, 4
MEASURED, OURS_MEASURED = 20, 400
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


@pytest.mark.timeout(900)
def test_candidates_and_a_claim_beside_a_published_server(
    fresh_database: Callable[[], str],
) -> None:
    theirs: dict[tuple[str, int, int], float] = {}
    for name, database in (("SQLite", ""), ("PostgreSQL", fresh_database())):
        with _server(database) as server:
            for limit, clients in product(LIMITS, (1, CLIENTS)):
                work = partial(_claimed, server, limit)
                theirs[name, clients, limit] = _rate(work, MEASURED, clients)
    ours = _our_rates(fresh_database())
    figures = [
        Figure(f"server on {name}, {_clients(count)}, limit {limit:,}", rate, "claims/s")
        for (name, count, limit), rate in theirs.items()
    ]
    for limit, rate in ours.items():
        alone = max(each for key, each in theirs.items() if key[1:] == (1, limit))
        best = max(each for key, each in theirs.items() if key[2] == limit)
        figures += [
            Figure(f"ours on PostgreSQL, 1 client, limit {limit:,}", rate, "claims/s"),
            Figure(f"ours / server, 1 client each, limit {limit:,}", rate / alone, "times", "≥ 50"),
            Figure(f"ours with 1 client / server's best, limit {limit:,}", rate / best, "times"),
        ]
    report("placement_server", figures)
    assert all(figure.value > 0 for figure in figures)


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


@contextmanager
def _server(database: str) -> Iterator[HttpPlacement]:
    with (
        environment.server(database) as server,
        closing(PlacementClient(server.url.replace("://", "://admin@"))) as client,
    ):
        placement = HttpPlacement(client)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda number: _make(placement, number), range(PROVIDERS)))
        yield placement


def _our_rates(url: str) -> dict[int, float]:
    upgrade(url)
    with closing(open_store(url)) as store:
        for first in range(0, PROVIDERS, BATCH):
            with store.begin() as uow:
                for number in range(first, first + BATCH):
                    _make(StorePlacement(uow), number)
        forest = Forest()

        def claimed(limit: int) -> None:
            with store.begin() as uow:
                _claimed(StorePlacement(uow, forest), limit)

        return {limit: _rate(partial(claimed, limit), OURS_MEASURED, 1) for limit in LIMITS}


def _make(placement: PlacementService, number: int) -> None:
    made = placement.ensure_provider(str(uuid.uuid4()), f"host-{number:04}")
    placement.set_inventories(made.id, ROOM, made.generation)


def _claimed(placement: PlacementService, limit: int) -> None:
    chosen = random.choice(placement.candidates(REQUEST, limit).found)
    placement.write([Consumer(str(uuid.uuid4()), chosen.allocations, "project", "user")])


def _rate(work: Callable[[], None], count: int, clients: int) -> float:
    """Return units of work a second, after a few that warm up."""
    for _ in range(max(2, count // 10)):
        work()
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: work(), range(count)))
        return count / (time.perf_counter() - began)
