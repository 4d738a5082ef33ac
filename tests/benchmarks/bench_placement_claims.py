"""Four processes claim 200 providers with room for one each: nothing twice, nothing lost, how fast.

Every process tries every provider, so that three of four claims meet one that has been taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from conductor.store.open_store import open_store
from models.tables.schema_upgrade import upgrade
from tests.benchmarks.claiming import offer, overcommitted, race
from tests.benchmarks.report import Figure, report

PROVIDERS, PROCESSES = 200, 4


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
@pytest.mark.timeout(300)
def test_claims_a_second(database: str, fresh_database: Callable[[], str], tmp_path: Path) -> None:
    url = fresh_database() if database == "postgresql" else f"sqlite:///{tmp_path}/claims.db"
    upgrade(url)
    with closing(open_store(url)) as store:
        offer(store, PROVIDERS)
        ended = race(url, PROCESSES)
        twice = overcommitted(store)
    report(
        f"placement_claims_{database}",
        [
            Figure("providers over-committed", twice, "", "0"),
            Figure("errors other than no capacity", ended.failed, "", "0"),
            Figure("claims that succeeded", ended.claimed, "", f"{PROVIDERS}"),
            Figure("claims", ended.claimed / ended.took_s, "1/s"),
            Figure("decisions, refusals included", PROVIDERS * PROCESSES / ended.took_s, "1/s"),
            Figure("tried again", ended.retried, ""),
        ],
    )
    assert (twice, ended.failed, ended.claimed) == (0, 0, PROVIDERS)
