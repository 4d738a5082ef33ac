"""What the demo asks for: flavors of every kind, an image, a group, and builds in mixed order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from models.messages.requests import BuildInstances, DefineEntry

_DEDICATED: Final = {"hw:cpu_policy": "dedicated"}
_CONTEXT: Final = {"project_id": "demo", "user_id": "demo"}
_IMAGE: Final = "debian-13"
_SEED: Final = 20
GROUP: Final = "spread"


@dataclass(frozen=True, slots=True)
class Order:
    """A flavor, how many requests ask for it, and for how many instances each."""

    flavor: str
    vcpus: int
    memory_mb: int
    requests: int
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    group: str | None = None


ORDERS: Final = (
    Order("web", 1, 1024, 130),
    Order("app", 2, 2048, 60),
    Order("app.numa", 4, 4096, 24, {"hw:numa_nodes": "1"}),
    Order("batch", 2, 1024, 6, count=5),
    Order("db", 4, 4096, 24, _DEDICATED),
    Order("db.replica", 4, 4096, 4, _DEDICATED, count=3, group=GROUP),
    Order("cache", 2, 4096, 26, {**_DEDICATED, "hw:cpu_thread_policy": "require"}),
    Order(
        "realtime",
        2,
        2048,
        12,
        {
            **_DEDICATED,
            "hw:cpu_thread_policy": "isolate",
            "hw:emulator_threads_policy": "isolate",
        },
    ),
    Order("vnf", 4, 4096, 16, {**_DEDICATED, "hw:mem_page_size": "2MB"}),
    Order("vnf.wide", 8, 8192, 8, {**_DEDICATED, "hw:mem_page_size": "2MB", "hw:numa_nodes": "2"}),
    Order("vnf.giant", 2, 4096, 10, {**_DEDICATED, "hw:mem_page_size": "1GB"}),
    Order("grid", 8, 8192, 4, {**_DEDICATED, "hw:numa_nodes": "8"}),
    Order("monster", 40, 65536, 2, {**_DEDICATED, "hw:numa_nodes": "1"}),
)

INSTANCES: Final = sum(order.requests * order.count for order in ORDERS)


def definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the requests that define flavors, image and group, as (task name, body)."""
    for order in ORDERS:
        flavor = {
            "name": order.flavor,
            "vcpus": order.vcpus,
            "memory_mb": order.memory_mb,
            "root_gb": 5,
            "extra_specs": dict(order.extra_specs),
        }
        yield _define("flavor", flavor)
    yield _define("image", {"id": _IMAGE, "name": "Debian 13"})
    yield _define("server_group", {"name": GROUP, "policy": "anti-affinity"})


def builds() -> list[tuple[str, dict[str, Any]]]:
    """Return the build requests in their order, the same at every run."""
    requests = [
        (BuildInstances.task, _build(order, number))
        for order in ORDERS
        for number in range(1, order.requests + 1)
    ]
    random.Random(_SEED).shuffle(requests)
    return requests


def _define(entry: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return DefineEntry.task, {"context": _CONTEXT, "entry": entry, "body": body}


def _build(order: Order, number: int) -> dict[str, Any]:
    instance = {"name": f"{order.flavor}-{number}", "flavor": order.flavor, "image": _IMAGE}
    if order.group is not None:
        instance["group"] = f"{order.group}"
    return {"context": _CONTEXT, "instance": instance, "count": order.count}
