"""Valid placements by exhaustion, from the contract's words alone; works on the contract's JSON.

Shares nothing with the fitter: sets instead of bit masks, every permutation of host cells,
every choice of CPUs, every hand-out of devices. Only for small hosts.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

Json = dict[str, Any]


def first_valid_assignment(case: Json) -> tuple[int, ...] | None:
    """Return the ids of the host cells of the first valid assignment in the preference order."""
    guest_cells = case["guest"]["cells"]
    order = preferred_order(case)
    fits: dict[tuple[int, int], bool] = {}
    for chosen in permutations(order, len(guest_cells)):
        if not networks_kept(case, [cell["id"] for cell in chosen]):
            continue
        for index, (host, guest) in enumerate(zip(chosen, guest_cells, strict=True)):
            pair = (host["id"], index)
            if pair not in fits:
                fits[pair] = pair_fits(case, host, guest, index)
            if not fits[pair]:
                break
        else:
            if devices_kept(case, [cell["id"] for cell in chosen]):
                return tuple(cell["id"] for cell in chosen)
    return None


def preferred_order(case: Json) -> list[Json]:
    """Return the host cells in the order of three successive stable sorts."""
    cells = list(case["host"]["cells"])
    if len(cells) <= len(case["guest"]["cells"]):
        return cells
    pack = case["pack"]
    cells.sort(key=lambda cell: cell["memory"] - cell["memory_usage"], reverse=not pack)
    if case["guest"]["cells"][0]["cpu_policy"] in (None, "shared"):
        cells.sort(key=lambda cell: cell["cpu_usage"], reverse=pack)
    else:
        cells.sort(
            key=lambda cell: len(set(cell["pcpuset"]) - set(cell["pinned_cpus"])),
            reverse=not pack,
        )
    pools = case["host"].get("pci_pools", [])

    def devices(cell: Json) -> int:
        return sum(pool["count"] for pool in pools if pool["numa_node"] == cell["id"])

    cells.sort(key=devices, reverse=bool(case.get("pci_requests")))
    return cells


def pair_fits(case: Json, host: Json, guest: Json, index: int) -> bool:
    """Say whether any choice of page size and CPUs puts this guest cell on this host cell."""
    if not any(memory_kept(host, guest, size) for size in sizes_allowed(host, guest)):
        return False
    if not limits_kept(case, host, guest):
        return False
    if guest["cpu_policy"] not in ("dedicated", "mixed"):
        return True
    free = sorted(set(host["pcpuset"]) - set(host["pinned_cpus"]))
    wants_reserved = reserves_cpu(case, index)
    for cpus in combinations(free, len(guest["pcpuset"])):
        if not threads_kept(host, guest, set(cpus)):
            continue
        if not wants_reserved:
            return True
        others = [cpu for cpu in free if cpu not in cpus]
        if any(reserved_kept(host, guest, set(cpus), cpu) for cpu in others):
            return True
    return False


def sizes_allowed(host: Json, guest: Json) -> list[int | None]:
    """Return the page sizes that may be chosen, the biggest first; None is no size at all."""
    wanted = guest["pagesize"]
    sizes = sorted((pool[0] for pool in host["mempages"]), reverse=True)
    if wanted is None:
        return [None]
    if wanted == -1:
        return sizes[-1:]
    if wanted == -2:
        return sizes[:-1]
    if wanted == -3:
        return sizes
    return [size for size in sizes if size == wanted]


def memory_kept(host: Json, guest: Json, size: int | None) -> bool:
    pins = guest["cpu_policy"] in ("dedicated", "mixed")
    if size is None and not host["mempages"]:
        room = host["memory"] - host["memory_usage"] if pins else host["memory"]
        return bool(guest["memory"] <= room)
    use_total = size is None and not pins
    if size is None:
        size = min(pool[0] for pool in host["mempages"])
    _, total, used, reserved = next(pool for pool in host["mempages"] if pool[0] == size)
    kib = guest["memory"] * 1024
    pages = total if use_total else max(0, total - used - reserved)
    return bool(kib % size == 0 and kib // size <= pages)


def limits_kept(case: Json, host: Json, guest: Json) -> bool:
    if guest["cpu_policy"] == "dedicated":
        return True
    if len(guest["cpuset"]) > len(host["cpuset"]):
        return False
    limits = case.get("limits")
    if limits is None:
        return True
    cpus = host["cpu_usage"] + len(guest["cpuset"])
    memory = host["memory_usage"] + guest["memory"]
    return bool(
        cpus <= len(host["cpuset"]) * limits["cpu_allocation_ratio"]
        and memory <= host["memory"] * limits["ram_allocation_ratio"]
    )


def reserves_cpu(case: Json, index: int) -> bool:
    return index == 0 and case["guest"].get("emulator_threads_policy") == "isolate"


def cores_of(host: Json) -> list[set[int]]:
    listed = [set(core) for core in host["siblings"] if core]
    known = set().union(*listed)
    lone = [{cpu} for cpu in {*host["cpuset"], *host["pcpuset"]} - known]
    return listed + lone


def threads_kept(host: Json, guest: Json, cpus: set[int]) -> bool:
    """Say whether these free CPUs respect the thread policy."""
    cores = cores_of(host)
    widest = max((len(set(core)) for core in host["siblings"]), default=1) or 1
    free = set(host["pcpuset"]) - set(host["pinned_cpus"])
    used = [(core & cpus, core & free, core) for core in cores if core & cpus]
    if guest["cpu_thread_policy"] == "require" and cpus:
        alone = sum(len(mine) == 1 for mine, _, _ in used)
        roomy = all(len(available) > 1 for _, available, _ in used)
        return widest > 1 and roomy and alone <= 1
    if guest["cpu_thread_policy"] == "isolate" and cpus:
        if widest > 1 and set(host["cpuset"]) != set(host["pcpuset"]):
            return False
        return all(
            len(mine) == 1 and available == core and len(core) == widest
            for mine, available, core in used
        )
    return True


def reserved_kept(host: Json, guest: Json, cpus: set[int], reserved: int) -> bool:
    if guest["cpu_thread_policy"] != "isolate":
        return True
    core = next(core for core in cores_of(host) if reserved in core)
    free = set(host["pcpuset"]) - set(host["pinned_cpus"])
    return core <= free and not core & cpus


def networks_kept(case: Json, chosen: list[int]) -> bool:
    wanted = (case.get("limits") or {}).get("network_metadata")
    if not wanted:
        return True
    local: dict[str, set[int]] = {}
    tunneled = set()
    for cell in case["host"]["cells"]:
        network = cell.get("network_metadata") or {}
        for physnet in network.get("physnets", []):
            local.setdefault(physnet, set()).add(cell["id"])
        if network.get("tunneled"):
            tunneled.add(cell["id"])
    for physnet in wanted["physnets"]:
        if physnet in local and not local[physnet] & set(chosen):
            return False
    return not (wanted["tunneled"] and tunneled and not tunneled & set(chosen))


def devices_kept(case: Json, chosen: list[int]) -> bool:
    """Say whether the devices can be handed out, trying every pool for every single device."""
    requests = case.get("pci_requests") or []
    pools = case["host"].get("pci_pools", [])
    sockets = {cell["id"]: cell.get("socket") for cell in case["host"]["cells"]}
    near = {sockets[cell] for cell in chosen} - {None}
    singles = []
    for request in requests:
        usable = [
            index
            for index, pool in enumerate(pools)
            if _spec_matches(pool, request) and _place_allowed(pool, request, chosen, sockets, near)
        ]
        singles += [usable] * request["count"]
    return _hand_out(singles, [pool["count"] for pool in pools])


def _spec_matches(pool: Json, request: Json) -> bool:
    offered = {**pool["tags"], "vendor_id": pool["vendor_id"], "product_id": pool["product_id"]}
    return any(
        all(offered.get(key) == value for key, value in spec.items()) for spec in request["spec"]
    )


def _place_allowed(
    pool: Json, request: Json, chosen: list[int], sockets: Json, near: set[Any]
) -> bool:
    node = pool["numa_node"]
    policy = request.get("numa_policy") or "legacy"
    if policy == "preferred" or node in chosen:
        return True
    if policy == "legacy":
        return node is None
    return policy == "socket" and node in sockets and sockets[node] in near


def _hand_out(singles: list[list[int]], counts: list[int]) -> bool:
    """Say whether every single device can come from a pool of its own choice.

    All that the devices so far may have left of the pools is followed, one device at a time.
    """
    left = {tuple(counts)}
    for usable in singles:
        left = {
            tuple(count - (index == pool) for index, count in enumerate(pair))
            for pair in left
            for pool in usable
            if pair[pool]
        }
    return bool(left)


def violations(case: Json, placement: Json, host_after: Json) -> list[str]:
    """Return every rule of the contract that a placement and its accounting break."""
    found: list[str] = []
    hosts = {cell["id"]: cell for cell in case["host"]["cells"]}
    after = {cell["id"]: cell for cell in host_after["cells"]}
    guests = case["guest"]["cells"]
    chosen = [cell["host_cell"] for cell in placement["cells"]]
    if [cell["id"] for cell in placement["cells"]] != [cell["id"] for cell in guests]:
        found.append("not every guest cell is placed once")
    if len(set(chosen)) != len(chosen):
        found.append("two guest cells share a host cell")
    if not networks_kept(case, chosen):
        found.append("a network is not local")
    if not devices_kept(case, chosen):
        found.append("devices are not near")
    if sorted(after) != sorted(hosts):
        found.append("host_after lists other cells than the host")
    placed = {cell["host_cell"]: cell for cell in placement["cells"]}
    for index, (cell, guest) in enumerate(zip(placement["cells"], guests, strict=True)):
        found += _cell_violations(case, hosts[cell["host_cell"]], (guest, index), cell)
    for key, host in hosts.items():
        found += _use_violations(host, placed.get(key), after[key])
    return found


def _cell_violations(case: Json, host: Json, asked: tuple[Json, int], cell: Json) -> list[str]:
    guest, index = asked
    found = []
    if any(cell[key] != guest[key] for key in ("cpuset", "pcpuset", "memory")):
        found.append("the placed cell is not the one asked for")
    sizes = [size for size in sizes_allowed(host, guest) if memory_kept(host, guest, size)]
    if not sizes or cell["pagesize"] != sizes[0]:
        found.append("not the biggest page size that fits")
    if not limits_kept(case, host, guest):
        found.append("limits are exceeded")
    cpus = set(cell["cpu_pinning"].values())
    reserved = cell["cpuset_reserved"]
    free = set(host["pcpuset"]) - set(host["pinned_cpus"])
    pinned_vcpus = [] if guest["cpu_policy"] in (None, "shared") else guest["pcpuset"]
    if sorted(map(int, cell["cpu_pinning"])) != pinned_vcpus or len(cpus) != len(pinned_vcpus):
        found.append("a vCPU is not pinned once")
    if not cpus | set(reserved) <= free or cpus & set(reserved):
        found.append("a CPU is not free")
    if not threads_kept(host, guest, cpus):
        found.append("the thread policy is broken")
    if len(reserved) != int(reserves_cpu(case, index)):
        found.append("emulator threads have no CPU of their own")
    if reserved and not reserved_kept(host, guest, cpus, reserved[0]):
        found.append("emulator threads share a core")
    return found


def _use_violations(host: Json, placed: Json | None, after: Json) -> list[str]:
    """Return where the use after the placement is not the use before plus the placement."""
    pinned = set(host["pinned_cpus"])
    pages = {pool[0]: pool[2] for pool in host["mempages"]}
    cpu_usage, memory_usage = host["cpu_usage"], host["memory_usage"]
    if placed is not None:
        taken = set(placed["cpu_pinning"].values()) | set(placed["cpuset_reserved"])
        blocked = set(placed.get("cpuset_blocked", []))
        if set(host["cpuset"]) == set(host["pcpuset"]) and blocked:
            siblings = set().union(*(core for core in cores_of(host) if core & taken))
            if blocked != siblings - taken:
                return ["other CPUs than the siblings are blocked"]
        elif blocked:
            return ["siblings are blocked on a host of the new style"]
        pinned |= taken | blocked
        cpu_usage += len(placed["cpuset"])
        memory_usage += placed["memory"]
        if pages:
            size = placed["pagesize"] or min(pages)
            pages[size] += placed["memory"] * 1024 // size
    expected = {
        "id": host["id"],
        "cpu_usage": cpu_usage,
        "memory_usage": memory_usage,
        "mempages": [[pool[0], pool[1], pages[pool[0]], pool[3]] for pool in host["mempages"]],
        "pinned_cpus": sorted(pinned),
    }
    return [] if after == expected else [f"use after is {after}, not {expected}"]
