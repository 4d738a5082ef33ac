"""One host in a store in memory, what can be made beside it, and who holds what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from conductor.placement.ports import PlacementService
from conductor.placement.providers import provider_id_of
from conductor.store import Host, Inventory, Provider
from models.errors import Conflict, NoValidHost, Rejected
from tests.scheduling.world import host

ROOT = provider_id_of("h1")
GPU, NIC, SHARED = "gpu-id", "nic-id", "shared-id"
AGGREGATE = "0d4d3b3e-5a52-4b62-8c31-5b7e0e3c1a11"


def a_root(name: str, **changes: Any) -> Host:
    plain = host(name, cells=1, shared=8, dedicated=4, memory_mib=4096)
    return replace(plain, provider_id=provider_id_of(name), **changes)


def made(
    placement: PlacementService, provider_id: str, parent: str | None = None, **has: Inventory
) -> Provider:
    placement.ensure_classes(name for name in has if name.startswith("CUSTOM_"))
    provider = placement.ensure_provider(provider_id, f"name of {provider_id}", parent)
    return placement.set_inventories(provider_id, has, provider.generation)


def hold(
    placement: PlacementService, name: str, held: Mapping[str, Mapping[str, int]], **more: Any
) -> None:
    """Replace what a consumer holds, as it is now."""
    before = placement.consumer(name)
    placement.write([replace(before, allocations=held, **more)])


def refused(kind: type[Rejected | NoValidHost | Conflict], call: Callable[[], object]) -> Any:
    with pytest.raises(kind) as caught:
        call()
    return caught.value
