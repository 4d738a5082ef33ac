"""Many providers with room for one claim each, and several processes that claim all they can."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import over_committed
from conductor.store import Inventory, Store

FULL = "no_capacity"
WAIT_S = 60


@dataclass(frozen=True)
class Race:
    """How the claims of all processes ended, and how long all of it took."""

    outcomes: Mapping[str, int]
    took_s: float

    @property
    def claimed(self) -> int:
        return self.outcomes.get("claimed", 0)

    @property
    def failed(self) -> int:
        """Errors other than that there was no room."""
        expected = ("claimed", FULL, "tries")
        return sum(count for code, count in self.outcomes.items() if code not in expected)

    @property
    def retried(self) -> int:
        """How often somebody had moved first, and the claim was tried again."""
        asked = self.outcomes["tries"]
        return asked - self.claimed - self.outcomes.get(FULL, 0) - self.failed


def offer(store: Store, count: int) -> None:
    """Make so many providers, each with room for one claim."""
    with store.begin() as uow:
        placement = StorePlacement(uow)
        for number in range(count):
            made = placement.ensure_provider(str(uuid.uuid4()), f"gpu-{number:04}")
            placement.set_inventories(made.id, {"VGPU": Inventory(1)}, made.generation)


def race(url: str, processes: int) -> Race:
    """Claim from so many processes, which set off together, until nothing is left."""
    running = [_process(url, number) for number in range(processes)]
    for process in running:
        assert _out(process).readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results: list[dict[str, Any]] = [json.loads(_out(process).readline()) for process in running]
    for process in running:
        assert process.wait(WAIT_S) == 0
    outcomes: Counter[str] = Counter()
    for result in results:
        outcomes.update(result["outcomes"])
    began = min(result["started"] for result in results)
    return Race(outcomes, max(result["ended"] for result in results) - began)


def overcommitted(store: Store) -> int:
    """Return how many providers have more in use than they have, by the books or by consumers."""
    with store.read() as uow:
        held: Counter[str] = Counter()
        for allocation in uow.allocations.where():
            held[allocation.provider] += allocation.amounts["VGPU"]
        providers = uow.providers.where()
    return sum(
        bool(over_committed(provider))
        or held[provider.name] > 1
        or held[provider.name] != provider.used["VGPU"]
        for provider in providers
    )


def _process(url: str, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.claiming_process", url, "--seed", str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
