"""Files that describe hosts: read whole or refused, naming file and rule."""

import io
import json
import tarfile
from pathlib import Path
from typing import Literal

import pytest

from models.errors import Rejected
from models.hardware import HostTopology, PagePool, cpus_of, mask_of
from models.messages.hardware.hardware_json import host_to_json
from tests.workers.files import (
    CPU,
    NODE,
    capabilities,
    directory,
    pages,
    tarball,
    two_nodes,
    xml_cell,
)
from tests.workers.world import HARDWARE
from workers.inventory import CpuSets, ImportedHost, read_host_files

OURS = host_to_json(HARDWARE.topology)


def only(path: Path, sets: CpuSets | None = None) -> ImportedHost:
    (host,) = read_host_files([path], sets)
    return host


def refused(path: Path, sets: CpuSets | None = None) -> Rejected:
    with pytest.raises(Rejected) as error:
        read_host_files([path], sets)
    assert str(path) in error.value.message
    return error.value


def check_two_nodes(topology: HostTopology) -> None:
    zero, one = topology.cells
    assert (zero.id, cpus_of(zero.shared_cpus), zero.memory_mib) == (0, (0, 1, 4, 5), 8192)
    assert (one.id, cpus_of(one.shared_cpus), one.dedicated_cpus) == (1, (2, 3, 6, 7), 0)
    assert one.siblings == (mask_of([2, 6]), mask_of([3, 7]))
    assert (zero.socket, one.socket) == (0, 1)
    assert zero.page_pools == (PagePool(4, 8192 * 256),)
    small = (8192 - 500 * 2 - 3 * 1024) * 256
    assert one.page_pools == (PagePool(4, small), PagePool(2048, 500, 12), PagePool(1048576, 3, 2))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("prefix", ["", "./", "some-host/", "a/b/c/"])
def test_a_tarball_is_read_whatever_its_compression_and_prefix(
    tmp_path: Path, mode: Literal["w", "w:gz", "w:bz2", "w:xz"], prefix: str
) -> None:
    files = {prefix + name: text for name, text in two_nodes().items()}
    check_two_nodes(only(tarball(tmp_path / "host.tar", files, mode)).topology)


@pytest.mark.parametrize("prefix", ["", "some-host"])
def test_a_directory_is_read_with_or_without_a_prefix(tmp_path: Path, prefix: str) -> None:
    directory(tmp_path / "rack-7" / prefix, two_nodes())
    host = only(tmp_path / "rack-7")
    assert host.name == "rack-7"
    check_two_nodes(host.topology)


def test_nothing_is_written_next_to_a_tarball(tmp_path: Path) -> None:
    only(tarball(tmp_path / "host.tar.bz2", two_nodes()))
    assert [path.name for path in tmp_path.iterdir()] == ["host.tar.bz2"]


@pytest.mark.parametrize(
    "name", ["../../sys/devices/system/cpu/online", "/sys/devices/system/cpu/online", "x/../../y"]
)
def test_a_tarball_whose_paths_lead_out_of_it_is_refused(tmp_path: Path, name: str) -> None:
    error = refused(tarball(tmp_path / "evil.tar.bz2", two_nodes() | {name: "0"}))
    assert error.code == "path_unsafe"


def test_links_in_a_tarball_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo(f"{CPU}/online")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert refused(path).code == "tree_missing"


def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0-3\n")
    root = directory(tmp_path / "host", two_nodes())
    (root / CPU / "online").unlink()
    (root / CPU / "online").symlink_to(tmp_path / "secret")
    check_two_nodes(only(root).topology)


def test_a_tarball_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 70 * 2**20
        archive.addfile(member, _Zeros())
    assert path.stat().st_size < 2**20
    assert refused(path).code == "file_too_large"


class _Zeros(io.RawIOBase):
    def read(self, size: int = -1, /) -> bytes:
        return bytes(max(0, size))


def test_a_damaged_tarball_is_refused(tmp_path: Path) -> None:
    path = tarball(tmp_path / "cut.tar.gz", two_nodes(), "w:gz")
    path.write_bytes(path.read_bytes()[:-40])
    assert refused(path).code == "file_damaged"
    path.write_bytes(b"BZh9" + b"nonsense" * 20)
    assert refused(path).code == "file_unreadable"


def test_two_trees_in_one_tarball_are_refused(tmp_path: Path) -> None:
    files = {f"{prefix}/{name}": text for prefix in "ab" for name, text in two_nodes().items()}
    assert refused(tarball(tmp_path / "two.tar", files, "w")).code == "tree_ambiguous"


def test_a_cpu_switched_off_is_left_out_of_cells_and_cores(tmp_path: Path) -> None:
    files = two_nodes() | {f"{CPU}/cpu6/online": "0"}
    one = only(directory(tmp_path / "host", files)).topology.cells[1]
    assert cpus_of(one.shared_cpus) == (2, 3, 7)
    assert one.siblings == (mask_of([2]), mask_of([3, 7]))


def test_a_mask_is_read_where_there_is_no_list(tmp_path: Path) -> None:
    files = two_nodes()
    del files[f"{NODE}/node1/cpulist"]
    files[f"{NODE}/node1/cpumap"] = "00000000,000000cc"
    check_two_nodes(only(directory(tmp_path / "host", files)).topology)


def test_nodes_without_memory_and_nodes_without_cpus_are_kept(tmp_path: Path) -> None:
    files = two_nodes() | {
        f"{NODE}/online": "0-3",
        f"{NODE}/node2/cpulist": "",
        f"{NODE}/node2/meminfo": "Node 2 MemTotal: 1048576 kB",
        f"{NODE}/node3/cpulist": "",
    }
    files[f"{NODE}/node0/meminfo"] = "Node 0 MemTotal: 0 kB"
    cells = only(directory(tmp_path / "host", files)).topology.cells
    assert [(cell.id, cell.shared_cpus.bit_count(), cell.memory_mib) for cell in cells] == [
        (0, 4, 0),
        (1, 4, 8192),
        (2, 0, 1024),
        (3, 0, 0),
    ]


def test_a_machine_without_nodes_is_one_cell(tmp_path: Path) -> None:
    files = {name: text for name, text in two_nodes().items() if not name.startswith(NODE)} | {
        "proc/meminfo": "MemTotal:        4194304 kB\nMemFree: 1 kB",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "10",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "10",
    }
    (cell,) = only(directory(tmp_path / "host", files)).topology.cells
    assert (cell.id, cell.memory_mib, cpus_of(cell.shared_cpus)) == (0, 4096, tuple(range(8)))
    assert cell.page_pools == (PagePool(4, (4096 - 20) * 256), PagePool(2048, 10))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{CPU}/online", "zero to three"),
        (f"{CPU}/online", ""),
        (f"{NODE}/node0/cpulist", "1-"),
        (f"{NODE}/node0/meminfo", "no memory here"),
        (f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "-5"),
        (f"{CPU}/cpu2/topology/thread_siblings_list", "2-99999999"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused_by_file(
    tmp_path: Path, name: str, text: str
) -> None:
    refused(directory(tmp_path / "host", two_nodes() | {name: text}))


def test_large_pages_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    files = two_nodes() | pages(1, 1048576, 9, 9)
    assert refused(directory(tmp_path / "host", files)).code == "pages_exceed_memory"


def test_capabilities_of_libvirt_are_read(tmp_path: Path) -> None:
    text = capabilities(
        [
            xml_cell(1, 4194304, {4: 1048576}, [(2, "2,6"), (3, "3,7"), (6, "2,6"), (7, "3,7")]),
            xml_cell(0, 2097152, {4: 262144, 2048: 512}, [(0, "0,4"), (4, "0,4")]),
        ]
    )
    path = tmp_path / "node-3.xml"
    path.write_text(text)
    host = only(path)
    zero, one = host.topology.cells
    assert host.name == "node-3"
    assert (zero.id, cpus_of(zero.shared_cpus), zero.memory_mib, zero.socket) == (
        0,
        (0, 4),
        2048,
        0,
    )
    assert zero.page_pools == (PagePool(4, 262144), PagePool(2048, 512))
    assert one.siblings == (mask_of([2, 6]), mask_of([3, 7]))
    assert host.notes == ()


def test_small_pages_that_libvirt_over_reports_are_cut_and_said(tmp_path: Path) -> None:
    cpus = [(cpu, f"{cpu}") for cpu in (2, 4, 6, 8, 10, 12, 14, *range(18, 31, 2))]
    pools = {4: 48_984_187, 2048: 0, 1048576: 50}
    path = tmp_path / "k19.xml"
    path.write_text(capabilities([xml_cell(0, 193_392 * 1024, pools, cpus)]))
    host = only(path)
    (cell,) = host.topology.cells
    assert cell.memory_mib == 193_392
    assert sum(pool.size_kib * pool.total for pool in cell.page_pools) == 193_392 * 1024
    assert cell.page_pools[0] == PagePool(4, (193_392 - 51_200) * 256)
    (note,) = host.notes
    assert "over-reports" in note


def test_pools_that_add_up_exactly_are_no_over_report(tmp_path: Path) -> None:
    pools = {4: 748_382, 2048: 3, 1048576: 1}
    path = tmp_path / "k20.xml"
    path.write_text(capabilities(xml_cell(n, 4_048_248, pools, [(n, str(n))]) for n in range(4)))
    host = only(path)
    assert host.notes == ()
    for cell in host.topology.cells:
        total_kib = sum(pool.size_kib * pool.total for pool in cell.page_pools)
        assert 0 <= 4_048_248 - total_kib < 1024
        assert total_kib <= cell.memory_mib * 1024


def test_cells_of_which_only_two_have_memory_are_kept(tmp_path: Path) -> None:
    cells = [
        xml_cell(
            number,
            82_336_776 if number in {0, 2} else 0,
            {4: 20_584_194} if number in {0, 2} else {},
            [(cpu, f"{cpu % 32},{cpu % 32 + 32}") for cpu in _k17_cpus(number)],
        )
        for number in range(4)
    ]
    path = tmp_path / "k17.xml"
    path.write_text(capabilities(cells))
    found = only(path).topology.cells
    assert [cell.memory_mib for cell in found] == [80_407, 0, 80_407, 0]
    assert [cell.shared_cpus.bit_count() for cell in found] == [16] * 4
    assert {core.bit_count() for cell in found for core in cell.siblings} == {2}


def _k17_cpus(number: int) -> list[int]:
    return [cpu for cpu in range(64) if cpu % 32 // 8 == number]


def test_cpus_that_libvirt_lists_without_siblings_are_offline(tmp_path: Path) -> None:
    path = tmp_path / "host.xml"
    path.write_text(capabilities([xml_cell(0, 1048576, {}, [(0, "0"), (1, ""), (2, "2")])]))
    (cell,) = only(path).topology.cells
    assert cpus_of(cell.shared_cpus) == (0, 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<capabilities><host/></capabilities>", "topology_missing"),
        ("<domain/>", "topology_missing"),
        ("<capabilities>", "xml_invalid"),
        (capabilities(["<cell id='x'/>"]), "xml_invalid"),
        (capabilities(["<cell id='0'><cpus><cpu id='99999999'/></cpus></cell>"]), "xml_invalid"),
        (capabilities(["<cell id='0'><memory unit='PB'>1</memory></cell>"]), "xml_invalid"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><capabilities>&b;</capabilities>", "xml_invalid"),
    ],
)
def test_xml_that_makes_no_sense_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "host.xml"
    path.write_text(text)
    assert refused(path).code == code


def test_our_own_json_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "host-9.json"
    path.write_text(json.dumps(OURS | {"disk_gb": 50, "traits": ["HW_CPU_X86_VMX"]}))
    host = only(path)
    assert (host.name, host.disk_gb, host.traits) == ("host-9", 50, ("HW_CPU_X86_VMX",))
    assert host.topology == HARDWARE.topology
    assert host.hardware.disk_gb == 50


def test_a_list_of_named_hosts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps([OURS | {"name": f"h{number}"} for number in range(3)]))
    assert [(host.name, host.disk_gb) for host in read_host_files([path])] == [
        ("h0", 1_000),
        ("h1", 1_000),
        ("h2", 1_000),
    ]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"cells": [{"id": 0, "memory": 1}]}, "cells.0.cpuset"),
        ({"cells": []}, "cpuset"),
        (OURS | {"colour": "red"}, "colour"),
        (OURS | {"disk_gb": -1}, "disk_gb"),
        (OURS | {"name": ""}, None),
        (OURS | {"name": 7}, "name"),
        (OURS | {"traits": "fast"}, "traits"),
        ([OURS], "name"),
        ([7], None),
        ({"cells": [OURS["cells"][0], OURS["cells"][0]]}, "cells.1.id"),
    ],
)
def test_json_that_describes_no_host_is_refused_by_field(
    tmp_path: Path, data: object, key: str | None
) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(data))
    if data == OURS | {"name": ""}:
        assert only(path).name == "host"
    else:
        assert refused(path).key == key


def test_small_pages_that_our_json_over_reports_are_cut_and_said(tmp_path: Path) -> None:
    cell = {
        "id": 0,
        "cpuset": [0],
        "pcpuset": [1],
        "memory": 193_392,
        "mempages": [[4, 48_984_187, 0, 0], [2048, 0, 0, 0], [1048576, 50, 0, 0]],
    }
    path = tmp_path / "k19.json"
    path.write_text(json.dumps({"cells": [cell]}))
    host = only(path)
    assert host.topology.cells[0].page_pools[0].total == (193_392 - 51_200) * 256
    assert len(host.notes) == 1


def test_large_pages_alone_are_left_alone(tmp_path: Path) -> None:
    cell = {"id": 0, "cpuset": [0], "memory": 4096, "mempages": [[2048, 2048, 0, 0]]}
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"cells": [cell]}))
    assert only(path).topology.cells[0].page_pools == (PagePool(2048, 2048),)


@pytest.mark.parametrize("content", [b"", b"plain text", b"\xff\xfe\x00binary", b"{"])
def test_a_file_of_no_known_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    refused(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere.xml").code == "file_unreadable"


def test_a_directory_without_a_tree_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "tree_missing"


def test_two_files_of_one_host_are_refused(tmp_path: Path) -> None:
    paths = [directory(tmp_path / side / "host-1", two_nodes()) for side in ("a", "b")]
    with pytest.raises(Rejected) as error:
        read_host_files(paths)
    assert error.value.code == "host_twice"


def test_sets_divide_the_cpus_and_what_is_in_neither_is_nobodys(tmp_path: Path) -> None:
    sets = CpuSets(shared=mask_of([0, 2]), dedicated=mask_of([4, 6, 7]))
    zero, one = only(directory(tmp_path / "host", two_nodes()), sets).topology.cells
    assert (cpus_of(zero.shared_cpus), cpus_of(zero.dedicated_cpus)) == ((0,), (4,))
    assert (cpus_of(one.shared_cpus), cpus_of(one.dedicated_cpus)) == ((2,), (6, 7))


def test_one_set_alone_leaves_the_other_empty(tmp_path: Path) -> None:
    sets = CpuSets(dedicated=mask_of([0, 1]))
    zero, one = only(directory(tmp_path / "host", two_nodes()), sets).topology.cells
    assert (zero.shared_cpus, cpus_of(zero.dedicated_cpus)) == (0, (0, 1))
    assert one.shared_cpus == one.dedicated_cpus == 0


def test_a_cpu_in_both_sets_is_refused_by_number() -> None:
    with pytest.raises(Rejected) as error:
        CpuSets(shared=mask_of([1, 13, 25]), dedicated=mask_of([11, 13, 14]))
    assert error.value.message == "CPU 13 is in the shared and the dedicated set"


def test_a_set_with_a_cpu_that_the_host_does_not_have_is_refused(tmp_path: Path) -> None:
    path = directory(tmp_path / "host", two_nodes())
    assert refused(path, CpuSets(shared=mask_of([0, 99]))).code == "cpu_unknown"
