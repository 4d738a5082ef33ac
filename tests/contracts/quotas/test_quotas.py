"""What quotas promise on every adapter: exact, however many ask at once (N68)."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from conductor.operations.build_instances import build_instances
from conductor.operations.engine.definition import NewOperation
from conductor.store import CatalogueEntry, Store
from models.errors import Conflict, Rejected, Unreachable
from models.messages.requests import BuildInstances, parse_request
from tests.contracts.store.conftest import Opener

CREATES, LIMIT = 20, 10
PATIENCE_S = 60


def create(store: Store) -> str:
    """Write one instance as the acceptance of a build does; return what came of it."""
    accept = build_instances.run_accept
    assert accept is not None
    body = {"name": "vm", "flavor": {"vcpus": 1, "memory_mb": 64}, "image": {"id": "img"}}
    context = {"project_id": "p", "user_id": "ann"}
    request = parse_request(BuildInstances.task, {"context": context, "instance": body})
    while True:
        try:
            with store.begin() as uow:
                accept(NewOperation(str(uuid.uuid4()), request, down_after_s=30.0), uow)
        except (Conflict, Unreachable):
            continue  # busy: asked again, as a message is
        except Rejected as refused:
            return refused.code
        return "accepted"


def test_twenty_creates_at_once_on_a_quota_of_ten_are_exactly_ten(opener: Opener) -> None:
    with opener().begin() as uow:
        body = {"name": "p", "instances": LIMIT, "users": {"ann": {"cores": LIMIT}}}
        uow.catalogue.put(CatalogueEntry("quota", "p", body, uow.now))
    stores = [opener() for _ in range(CREATES)]
    start = threading.Barrier(CREATES)

    def race(store: Store) -> str:
        start.wait(PATIENCE_S)
        return create(store)

    with ThreadPoolExecutor(CREATES) as pool:
        came = Counter(pool.map(race, stores))
    assert came == {"accepted": LIMIT, "quota_exceeded": CREATES - LIMIT}
    with stores[0].read() as uow:
        assert uow.instances.usage("p")["instances"] == LIMIT
