"""The public sysfs tarballs, against figures that tar and grep take from them."""

import re
import subprocess
from functools import cache
from typing import Any

import pytest

from models.hardware import HostTopology, cpus_of
from tests.workers.files import data_file
from workers.inventory import ImportedHost, read_host_files

SPARSE, SMT, OFFLINE = (
    "48amd64-4pa2n6c-sparse.tar.bz2",
    "64amd64-4s2n4ca2co.tar.bz2",
    "offline-cpu0-node0.tar.bz2",
)


@cache
def host(name: str) -> ImportedHost:
    (found,) = read_host_files([data_file(name)])
    return found


def shell(name: str, member: str) -> str:
    """What `tar` prints of the members that match a pattern."""
    command = ["tar", "-xjOf", str(data_file(name)), "--wildcards", member]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def members(name: str, pattern: str) -> list[Any]:
    """The groups that a pattern finds among the member names that `tar` lists."""
    command = ["tar", "-tjf", str(data_file(name))]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(pattern, listing, re.MULTILINE)


def cpus(topology: HostTopology) -> dict[int, tuple[int, ...]]:
    return {cell.id: cpus_of(cell.shared_cpus) for cell in topology.cells}


@pytest.mark.parametrize("name", [SPARSE, SMT, OFFLINE])
def test_nodes_and_their_memory_are_those_of_the_tarball(name: str) -> None:
    nodes = {int(member) for member in members(name, r"/node/node(\d+)/meminfo$")}
    told = shell(name, "*/sys/devices/system/node/node*/meminfo")
    memory_kib = {
        int(node): int(kib) for node, kib in re.findall(r"Node (\d+) MemTotal: +(\d+)", told)
    }
    cells = host(name).topology.cells
    assert {cell.id for cell in cells} == nodes == set(memory_kib)
    assert {cell.id: cell.memory_mib for cell in cells} == {
        node: kib // 1024 for node, kib in memory_kib.items()
    }


@pytest.mark.parametrize("name", [SPARSE, SMT, OFFLINE])
def test_pools_add_up_to_the_memory_and_have_the_sizes_of_the_tarball(name: str) -> None:
    sizes = members(name, r"node/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages$")
    for cell in host(name).topology.cells:
        assert sum(pool.size_kib * pool.total for pool in cell.page_pools) == cell.memory_mib * 1024
        expected = {4} | {int(size) for node, size in sizes if int(node) == cell.id}
        assert {pool.size_kib for pool in cell.page_pools} == expected


@pytest.mark.parametrize("name", [SPARSE, SMT, OFFLINE])
def test_only_online_cpus_are_there_and_without_sets_all_are_shared(name: str) -> None:
    switches = shell(name, "*/sys/devices/system/cpu/online")
    first, _, last = switches.strip("\n\0").partition("-")
    online = set(range(int(first), int(last) + 1))
    cells = host(name).topology.cells
    found = [cpu for cell in cells for cpu in cpus_of(cell.shared_cpus)]
    assert len(found) == len(set(found))
    assert set(found) <= online
    for cell in cells:
        assert cell.dedicated_cpus == 0
        assert {cpu for core in cell.siblings for cpu in cpus_of(core)} == set(
            cpus_of(cell.shared_cpus)
        )


def test_sparse_node_numbers_are_kept() -> None:
    topology = host(SPARSE).topology
    assert [cell.id for cell in topology.cells] == [0, 1, 2, 33, 34, 45, 72, 73]
    assert cpus(topology)[45] == tuple(range(30, 36))
    assert [cell.socket for cell in topology.cells] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {core.bit_count() for cell in topology.cells for core in cell.siblings} == {1}


def test_threads_of_a_core_are_siblings() -> None:
    topology = host(SMT).topology
    assert len(topology.cells) == 8
    assert cpus(topology)[5] == tuple(range(40, 48))
    pairs = [cpus_of(core) for cell in topology.cells for core in cell.siblings]
    assert pairs == [(cpu, cpu + 1) for cpu in range(0, 64, 2)]


def test_offline_cpus_and_a_node_that_is_gone_are_left_out_and_said() -> None:
    imported = host(OFFLINE)
    told = shell(OFFLINE, "*/sys/devices/system/node/node1/cpumap").strip("\n\0")
    mask = int(told.replace(",", ""), 16)
    assert cpus(imported.topology) == {1: cpus_of(mask)} == {1: (5, 7, 9, 11, 13, 15, 17, 19)}
    (note,) = imported.notes
    assert note == "CPUs 4,6,8,10,12,14,16,18,20 are online but in no online node: left out"


def test_hosts_are_named_after_their_files() -> None:
    paths = [data_file(name) for name in (SPARSE, SMT, OFFLINE)]
    assert [read_host_file.name for read_host_file in read_host_files(paths)] == [
        "48amd64-4pa2n6c-sparse",
        "64amd64-4s2n4ca2co",
        "offline-cpu0-node0",
    ]
