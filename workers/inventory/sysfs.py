"""A sysfs tree to reports of NUMA cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from models.errors import Rejected
from models.hardware import CpuMask, PagePool, cpus_of, format_cpu_list, parse_cpu_list
from workers.inventory.hardware_findings import SMALL_PAGE_KIB, CellReport
from workers.inventory.sysfs_tree import Tree

_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"
_CPU_NAME = re.compile(rf"{_CPU}/cpu([0-9]+)/")
_BASE_SIZES_KIB = (4, 16, 64)
_ENOUGH_PAGES = 1000
"""Of so many free pages the size follows even if the two files were read at different moments."""
_HUGE = re.compile(r"/hugepages-([0-9]{1,12})kB/")
_HUGE_WITH_64 = frozenset({524288, 16384, 16777216})
"""Huge pages in KiB that only machines with ordinary pages of 64 KiB have."""
_NODE_NAME = re.compile(rf"{_NODE}/node([0-9]+)/")


def cells_of_tree(tree: Tree) -> tuple[tuple[CellReport, ...], tuple[str, ...]]:
    """Return the NUMA cells of a sysfs tree by node number, and what a person should know.

    Only what is online counts, for cores and nodes too. Nodes without CPUs or without memory
    are kept. A tree without nodes is one cell, its memory that of `proc/meminfo`. Raises
    `Rejected` naming the file that is missing or not understood.
    """
    online = _online_cpus(tree)
    nodes = _online_nodes(tree)
    base_kib = _base_page_kib(tree, nodes)
    if not nodes:
        whole = _cell(tree, 0, online, "proc/meminfo", "sys/kernel/mm")
        return (replace(whole, base_page_kib=base_kib),), ()
    cells = tuple(
        replace(
            _cell(
                tree,
                node,
                _node_cpus(tree, node) & online,
                f"{_NODE}/node{node}/meminfo",
                f"{_NODE}/node{node}",
            ),
            base_page_kib=base_kib,
        )
        for node in nodes
    )
    stray = online
    for cell in cells:
        stray &= ~cell.cpus
    if not stray:
        return cells, ()
    return cells, (f"CPUs {format_cpu_list(stray)} are online but in no online node: left out",)


def _online_cpus(tree: Tree) -> CpuMask:
    name = f"{_CPU}/online"
    if name in tree:
        online = _cpu_list(tree, name)
    else:
        # Also how the kernel sees it: a CPU that cannot be switched off has no such file.
        online = 0
        for path in tree:
            if match := _CPU_NAME.match(path):
                online |= 1 << int(match[1])
    for cpu in cpus_of(online):
        if tree.get(f"{_CPU}/cpu{cpu}/online") == "0":
            online &= ~(1 << cpu)
    if not online:
        raise Rejected("cpus_missing", f"no CPU is online under {_CPU}")
    return online


def _online_nodes(tree: Tree) -> list[int]:
    found = {int(match[1]) for path in tree if (match := _NODE_NAME.match(path))}
    name = f"{_NODE}/online"
    if name in tree:
        found &= set(cpus_of(_cpu_list(tree, name)))
    return sorted(found)


def _node_cpus(tree: Tree, node: int) -> CpuMask:
    return _cpus(tree, f"{_NODE}/node{node}/cpulist", f"{_NODE}/node{node}/cpumap")


def _cell(tree: Tree, node: int, cpus: CpuMask, meminfo: str, pages: str) -> CellReport:
    packages = (tree.get(f"{_CPU}/cpu{cpu}/topology/physical_package_id") for cpu in cpus_of(cpus))
    return CellReport(
        id=node,
        cpus=cpus,
        cores=frozenset(_core(tree, cpu) & cpus for cpu in cpus_of(cpus)),
        sockets=frozenset(
            int(package) for package in packages if package is not None and package.isdigit()
        ),
        memory_kib=_memory_kib(tree, meminfo),
        pools=_large_pools(tree, f"{pages}/hugepages"),
    )


def _core(tree: Tree, cpu: int) -> CpuMask:
    below = f"{_CPU}/cpu{cpu}/topology"
    lists = f"{below}/thread_siblings_list", f"{below}/core_cpus_list"
    name = next((item for item in lists if item in tree), lists[0])
    return _cpus(tree, name, f"{below}/thread_siblings") | 1 << cpu


def _memory_kib(tree: Tree, name: str) -> int:
    """Return the total memory that a meminfo file tells, 0 for a node that has no such file."""
    if name not in tree:
        if name.startswith(_NODE):
            return 0
        raise Rejected("memory_missing", f"there are no nodes, and {name} is missing")
    found = re.search(r"\bMemTotal:\s+([0-9]+) kB", tree[name])
    if found is None:
        raise Rejected("file_invalid", f"{name} has no line `MemTotal: … kB`", key=name)
    return int(found[1])


def _base_page_kib(tree: Tree, nodes: Sequence[int]) -> int:
    """Return the size of ordinary pages, which sysfs never names.

    Free memory is told in kB and in pages: what one is of the other is the size. Without these
    the sizes of huge pages tell: each size of ordinary pages has some that no other has.
    """
    places = [f"{_NODE}/node{node}" for node in nodes] or ["proc"]
    for place in places:
        free = re.search(r"\bMemFree:\s+([0-9]{1,15}) kB", tree.get(f"{place}/meminfo", ""))
        pages = re.search(r"\bnr_free_pages ([0-9]{1,15})\b", tree.get(f"{place}/vmstat", ""))
        if free and pages and int(pages[1]) >= _ENOUGH_PAGES:
            size_kib = int(free[1]) / int(pages[1])
            return min(_BASE_SIZES_KIB, key=lambda item: abs(item - size_kib))
    sizes = {int(found[1]) for path in tree if (found := _HUGE.search(path))}
    if 64 in sizes:
        return SMALL_PAGE_KIB
    if sizes & _HUGE_WITH_64:
        return 64
    return 16 if {2048, 32768} <= sizes else SMALL_PAGE_KIB


def _large_pools(tree: Tree, below: str) -> tuple[PagePool, ...]:
    pattern = re.compile(rf"{below}/hugepages-([0-9]+)kB/nr_hugepages")
    pools = []
    for path in sorted(tree):
        if match := pattern.fullmatch(path):
            size_kib = int(match[1])
            folder = path.removesuffix("/nr_hugepages")
            # Surplus pages are borrowed from ordinary memory and vanish when freed.
            total = _count(tree, path) - _count(tree, f"{folder}/surplus_hugepages")
            used = _count(tree, path) - _count(tree, f"{folder}/free_hugepages")
            pools.append(PagePool(size_kib, max(0, total), min(max(0, used), max(0, total))))
    return tuple(pools)


def _count(tree: Tree, name: str) -> int:
    text = tree.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Rejected("file_invalid", f"{name} is {text[:40]!r}: it holds a number", key=name)
    return int(text)


def _cpus(tree: Tree, list_name: str, mask_name: str) -> CpuMask:
    if list_name in tree:
        return _cpu_list(tree, list_name)
    if mask_name in tree:
        return _cpu_mask(tree, mask_name)
    return 0


def _cpu_list(tree: Tree, name: str) -> CpuMask:
    try:
        return parse_cpu_list(tree[name])
    except Rejected as error:
        raise Rejected("file_invalid", f"{name}: {error.message}", key=name) from None


def _cpu_mask(tree: Tree, name: str) -> CpuMask:
    text = tree[name].replace(",", "")
    if not re.fullmatch("[0-9a-fA-F]{1,16384}", text):
        message = f"{name} is {tree[name][:40]!r}: it holds groups of hexadecimal digits"
        raise Rejected("file_invalid", message, key=name)
    return int(text, 16)
