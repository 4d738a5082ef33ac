"""Small random cases, made to sit at the edges: almost full hosts, odd cores, tight limits."""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

PAGE_SIZES = (256, 1024, 4096)
PHYSNETS = ("red", "blue", "green")


def random_case(dice: Random) -> Json:
    """Return a case of the contract with a ready guest; one in seven is all about affinity."""
    kind = dice.random()
    if kind < 0.02:
        return _tight_case(dice)
    return _affine_case(dice) if kind < 0.145 else _any_case(dice)


def _tight_case(dice: Random) -> Json:
    """Return an affine case that asks for just what some cells have, or for a little more."""
    case = _affine_case(dice, dice.choice([5, 6]))
    pools = case["host"]["pci_pools"] + [_pool(dice, case["host"]["cells"]) for _ in range(4)]
    case["host"]["pci_pools"] = pools
    cells = case["host"]["cells"]
    near = {cell["id"] for cell in dice.sample(cells, len(case["guest"]["cells"]))}
    for request in case["pci_requests"]:
        product = dice.choice("ab")
        there = sum(
            pool["count"]
            for pool in pools
            if pool["numa_node"] in near and pool["product_id"] == product
        )
        request["count"] = max(1, there // dice.choice([1, 1, 2]) + dice.choice([0, 0, 1]))
        request["spec"] = [{"product_id": product}]
        request["numa_policy"] = dice.choice(["required", "required", "socket", "legacy"])
    return case


def _affine_case(dice: Random, count: int | None = None) -> Json:
    """Return a roomy host whose networks and devices are what decides."""
    cells = []
    for place, number in enumerate(dice.sample(range(8), count or dice.choice([3, 4, 4, 5]))):
        cpus = list(range(place * 4, place * 4 + 4))
        cell = _host_cell(dice, number, (cpus, [], cpus), 1, pools=False)
        cell.update({"memory": 8, "memory_usage": dice.choice([0, 0, 4, 7])})
        cell["network_metadata"] = _networks(dice, 0.3)
        cells.append(cell)
    guest = _guest(dice, 3)
    for cell in guest["cells"]:
        cell.update({"cpu_policy": "dedicated", "cpu_thread_policy": None, "pagesize": None})
        cell.update({"pcpuset": cell["cpuset"] + cell["pcpuset"], "cpuset": []})
        cell["pcpuset"].sort()
    return {
        "id": "affine",
        "host": {"cells": cells, "pci_pools": [_pool(dice, cells) for _ in range(6)]},
        "guest": guest,
        "limits": {
            "cpu_allocation_ratio": 1.0,
            "ram_allocation_ratio": 1.0,
            "network_metadata": _networks(dice, 0.4),
        },
        "pci_requests": [_request(dice, number) for number in range(dice.randint(1, 4))],
        "pack": dice.random() < 0.5,
    }


def _networks(dice: Random, share: float) -> Json:
    return {
        "physnets": [net for net in PHYSNETS if dice.random() < share],
        "tunneled": dice.random() < share,
    }


def _any_case(dice: Random) -> Json:
    cells = _host_cells(dice)
    case: Json = {
        "id": "random",
        "host": {"cells": cells},
        "guest": _guest(dice, len(cells)),
        "limits": _limits(dice),
        "pack": dice.random() < 0.5,
    }
    if dice.random() < 0.3:
        case["host"]["pci_pools"] = [_pool(dice, cells) for _ in range(dice.randint(2, 5))]
        if dice.random() < 0.8:
            case["pci_requests"] = [_request(dice, n) for n in range(dice.randint(1, 3))]
    return case


def _host_cells(dice: Random) -> list[Json]:
    style = dice.choice(["old", "old", "new", "new", "new", "mixed-up"])
    threads = dice.choice([1, 2, 2, 4, 8])
    pools = dice.random() < 0.8
    cells, first = [], 0
    for number in dice.sample(range(6), dice.choice([1, 2, 2, 3, 3, 4])):
        count = dice.choice([0, 4, 6, 8, 8, 8])
        cpus = list(range(first, first + count))
        first += count
        cells.append(_host_cell(dice, number, _sets(dice, cpus, style), threads, pools))
    return cells


def _sets(dice: Random, cpus: list[int], style: str) -> tuple[list[int], list[int], list[int]]:
    """Return all, shared and dedicated CPUs; some belong to nobody."""
    if style == "old":
        return cpus, cpus, cpus
    dedicated = [cpu for cpu in cpus if dice.random() < 0.7]
    spare = [cpu for cpu in cpus if cpu not in dedicated]
    shared = [cpu for cpu in spare if dice.random() < 0.9]
    if style == "mixed-up" and dice.random() < 0.5:
        shared = []
    return cpus, shared, dedicated


def _host_cell(
    dice: Random,
    number: int,
    sets: tuple[list[int], list[int], list[int]],
    threads: int,
    pools: bool,
) -> Json:
    cpus, shared, dedicated = sets
    busy = dice.choice([0, 0, 0.2, 0.4])
    memory = dice.choice([0, 8, 16, 16, 32])
    cell: Json = {
        "id": number,
        "socket": dice.choice([0, 1, None]),
        "cpuset": shared,
        "pcpuset": dedicated,
        "memory": memory,
        "siblings": _siblings(dice, cpus, threads),
        "mempages": _mempages(dice) if pools else [],
        "cpu_usage": dice.randint(0, dice.choice([0, 4, 8])),
        "memory_usage": dice.randint(0, dice.choice([0, memory // 2, memory])),
        "pinned_cpus": [cpu for cpu in dedicated if dice.random() < busy],
    }
    if dice.random() < 0.5:
        cell["network_metadata"] = {
            "physnets": [net for net in PHYSNETS if dice.random() < 0.4],
            "tunneled": dice.random() < 0.3,
        }
    return cell


def _siblings(dice: Random, cpus: list[int], threads: int) -> list[list[int]]:
    if dice.random() < 0.1:
        return []
    apart = max(1, len(cpus) // threads) if dice.random() < 0.7 else 1
    if apart > 1:
        cores = [cpus[start::apart] for start in range(apart)]
    else:
        cores = [cpus[start : start + threads] for start in range(0, len(cpus), threads)]
    if dice.random() < 0.1 and cores:
        cores.pop(dice.randrange(len(cores)))
    return [core for core in cores if core]


def _mempages(dice: Random) -> list[list[int]]:
    sizes = [size for size in PAGE_SIZES if dice.random() < 0.8] or [256]
    pools = []
    for size in sizes:
        total = dice.choice([0, 8, 16, 16, 32]) * 1024 // size
        used = dice.randint(0, dice.choice([0, total // 4, total]))
        pools.append([size, total, used, dice.choice([0, 0, 0, total // 4])])
    dice.shuffle(pools)
    return pools


def _guest(dice: Random, host_cells: int) -> Json:
    count = min(dice.choice([1, 2, 2, 3, 4]), host_cells + (dice.random() < 0.03))
    policy = dice.choice([None, "shared", "dedicated", "dedicated", "dedicated", "mixed", "mixed"])
    threads = None
    if policy in ("dedicated", "mixed"):
        threads = dice.choice([None, "prefer", "require", "require", "isolate", "isolate"])
    pagesize = dice.choice([None] * 5 + [-1, -2, -3, -3, dice.choice(PAGE_SIZES)])
    size = dice.choice([1, 2, 4])  # one guest in three is large for its host
    equal = (dice.randint(1, size), dice.choice([0, 4, 4, 4 * size]))
    cells, first = [], 0
    for number in range(count):
        vcpus, memory = equal
        if dice.random() < 0.5:
            vcpus, memory = dice.randint(0, size + 1), dice.choice([0, 1, 2, 4, 4, 8])
        cpus = list(range(first, first + vcpus))
        first += vcpus
        pinned = {"dedicated": cpus, "mixed": [c for c in cpus if dice.random() < 0.6]}
        dedicated = pinned.get(policy or "shared", [])
        cells.append(
            {
                "id": number,
                "cpuset": [cpu for cpu in cpus if cpu not in dedicated],
                "pcpuset": dedicated,
                "memory": memory,
                "pagesize": pagesize,
                "cpu_policy": policy,
                "cpu_thread_policy": threads,
            }
        )
    isolated = policy in ("dedicated", "mixed") and dice.random() < 0.3
    return {"cells": cells, "emulator_threads_policy": "isolate" if isolated else None}


def _limits(dice: Random) -> Json | None:
    if dice.random() < 0.3:
        return None
    return {
        "cpu_allocation_ratio": dice.choice([1.0, 1.5, 2.0, 4.0]),
        "ram_allocation_ratio": dice.choice([1.0, 1.5, 2.0]),
        "network_metadata": {
            "physnets": [net for net in (*PHYSNETS, "absent") if dice.random() < 0.2],
            "tunneled": dice.random() < 0.2,
        },
    }


def _pool(dice: Random, cells: list[Json]) -> Json:
    return {
        "numa_node": dice.choice([*(cell["id"] for cell in cells), None, 99]),
        "count": dice.randint(0, 3),
        "vendor_id": "8086",
        "product_id": dice.choice(["a", "b"]),
        "tags": {"rack": "left"} if dice.random() < 0.5 else {},
    }


def _request(dice: Random, number: int) -> Json:
    specs = [{"product_id": "a"}, {"product_id": "b"}, {"vendor_id": "8086"}, {"rack": "left"}]
    return {
        "id": str(number),
        "count": dice.choice([1, 1, 2, 3]),
        "spec": dice.sample(specs, dice.choice([1, 1, 2])),
        "numa_policy": dice.choice([None, "required", "required", "preferred", "legacy", "socket"]),
    }
