"""Hosts, guests and case lines of the fitter's benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from models.hardware import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    PagePool,
    PciPool,
    PciRequest,
    mask_of,
)

GIB = 1024
NETWORKS = ("red", "green", "blue")


@dataclass(frozen=True, slots=True)
class Asked:
    """All that one call of a fitter takes."""

    host: HostTopology
    guest: GuestTopology
    limits: Limits | None = None
    requests: tuple[PciRequest, ...] = ()


def host(cells: int, full: int = 0, threads: int = 32) -> HostTopology:
    """Return a host of 2-way cores with 64 GiB a cell; the first `full` cells have no free CPU."""
    return HostTopology(tuple(_cell(number, number < full, threads) for number in range(cells)))


def guest(cells: int, vcpus: int = 4) -> GuestTopology:
    """Return a pinned guest with so many dedicated vCPUs a cell."""
    return GuestTopology(
        tuple(
            GuestCell(n, 0, mask_of(range(n * vcpus, (n + 1) * vcpus)), GIB, None, "dedicated")
            for n in range(cells)
        )
    )


def with_affinity(asked: Asked) -> Asked:
    """Return the same with three networks and four device requests that can all be served."""
    cells = tuple(
        replace(cell, physnets=frozenset({NETWORKS[cell.id % 3]}), socket=cell.id // 4)
        for cell in asked.host.cells
    )
    pools = tuple(
        PciPool(cell.id, 1 + cell.id % 2, "8086", product) for cell in cells for product in "abc"
    )
    requests = tuple(
        PciRequest(str(n), 2, tuple({"product_id": name} for name in products), policy)
        for n, (products, policy) in enumerate(
            [("a", "required"), ("ab", "required"), ("bc", "socket"), ("c", "legacy")]
        )
    )
    limits = Limits(1.0, 1.0, frozenset(NETWORKS))
    return Asked(HostTopology(cells, pools), asked.guest, limits, requests)


def knife_edge(dice: Random, cells: int, guest_cells: int) -> Asked:
    """Return a case whose networks and devices are just there, or just not.

    What is asked for is what some random choice of cells has, sometimes a little more: then
    almost every choice comes close and few, or none, will do.
    """
    plain = host(cells, threads=4)
    products = "abcdef"[: dice.choice([3, 4, 4, 6])]
    most = dice.choice([1, 2, 3, 5, 9])
    pools = [
        PciPool(number, dice.randint(1, most), "8086", product)
        for number in range(cells)
        for product in products
        if dice.random() < dice.choice([0.3, 0.5, 0.8])
    ]
    chosen = dice.sample(range(cells), guest_cells)
    requests = _just_what_they_have(dice, [pool for pool in pools if pool.numa_node in chosen])
    rare = dice.choice([0.05, 0.1, 0.3])
    networked = tuple(
        replace(
            cell,
            physnets=frozenset(net for net in NETWORKS if dice.random() < rare),
            socket=cell.id // 4,
        )
        for cell in plain.cells
    )
    limits = Limits(1.0, 1.0, frozenset(NETWORKS))
    return Asked(
        HostTopology(networked, tuple(pools)), guest(guest_cells, vcpus=2), limits, requests
    )


def _just_what_they_have(dice: Random, pools: list[PciPool]) -> tuple[PciRequest, ...]:
    left: dict[str, int] = {}
    for pool in pools:
        left[pool.product_id] = left.get(pool.product_id, 0) + pool.count
    policy = dice.choice(["required", "required", "socket"])
    requests = []
    for number in range(4):
        products = dice.sample(sorted(left), min(len(left), dice.choice([1, 1, 2])))
        count = sum(left[product] for product in products)
        count = max(1, int(count * dice.choice([1, 1, 1.1, 1.2, 1.3])))
        spec = tuple({"product_id": product} for product in products)
        requests.append(PciRequest(str(number), count, spec, policy))
        for product in products:
            left[product] //= dice.choice([2, 10**6])
    return tuple(requests)


def _cell(number: int, full: bool, threads: int) -> HostCell:
    first = number * threads
    cpus = mask_of(range(first, first + threads))
    apart = threads // 2
    cores = tuple(mask_of([cpu, cpu + apart]) for cpu in range(first, first + apart))
    return HostCell(
        number,
        number // 2,
        0,
        cpus,
        64 * GIB,
        cores,
        (PagePool(4, 64 * GIB * 256), PagePool(2048, 0)),
        pinned_cpus=cpus if full else 0,
    )


def case_lines(count: int) -> Iterator[str]:
    """Yield lines for `conductor fit`: two-cell hosts, guests that fit, do not, or are wrong."""
    for number in range(count):
        yield json.dumps(_case(number)) + "\n"


def _case(number: int) -> dict[str, Any]:
    specs = (
        {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"},
        {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
        {"hw:numa_nodes": "1"},
        {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large", "hw:numa_nodes": "2"},
        {"hw:numa_nodes": "x"},
    )[number % 5]
    network = {"physnets": [], "tunneled": False}
    return {
        "id": str(number),
        "host": {"cells": [_cell_json(item, number % 7) for item in range(2)]},
        "flavor": {"name": "f", "vcpus": 8, "memory_mb": 8192, "extra_specs": specs},
        "image": {"properties": {}},
        "limits": {
            "cpu_allocation_ratio": 4.0,
            "ram_allocation_ratio": 1.5,
            "network_metadata": network,
        },
        "pack": False,
    }


def _cell_json(number: int, used: int) -> dict[str, Any]:
    cpus = list(range(number * 16, number * 16 + 16))
    return {
        "id": number,
        "socket": number,
        "cpuset": cpus[:4],
        "pcpuset": cpus[4:],
        "memory": 65536,
        "siblings": [[cpu, cpu + 8] for cpu in cpus[:8]],
        "mempages": [[4, 12582912, 0, 0], [2048, 8192, 0, 0]],
        "cpu_usage": used,
        "memory_usage": 0,
        "pinned_cpus": cpus[4 : 4 + used],
        "network_metadata": {"physnets": ["physnet0"], "tunneled": False},
    }
