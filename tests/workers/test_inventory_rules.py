"""What descriptions of hosts are held to: ordinary pages, CPU sets, traits."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.hardware import mask_of
from tests.workers.files import NODE, directory, pages, two_nodes
from tests.workers.test_inventory import OURS, only, refused
from workers.inventory import CpuSets


def arm(*sizes_kib: int, vmstat: str = "", free_kib: int = 0) -> dict[str, str]:
    """A node of 8 GiB with huge pages of these sizes, none set aside."""
    files = dict(two_nodes())
    files = {name: text for name, text in files.items() if "hugepages" not in name}
    for node in (0, 1):
        for size_kib in sizes_kib:
            files |= pages(node, size_kib, 0, 0)
        if vmstat:
            files[f"{NODE}/node{node}/vmstat"] = vmstat
            free = f"Node {node} MemFree:    {free_kib} kB"
            files[f"{NODE}/node{node}/meminfo"] += f"\n{free}"
    return files


@pytest.mark.parametrize(
    ("files", "base_kib"),
    [
        (arm(64, 2048, 32768, 1048576), 4),  # arm64 with ordinary pages of 4 KiB
        (arm(2048, 1048576), 4),  # x86
        (arm(2048, 32768, 1048576), 16),  # arm64, 16 KiB
        (arm(2048, 524288, 16777216), 64),  # arm64, 64 KiB
        (arm(16384, 16777216), 64),  # POWER
        (arm(2048, 1048576, vmstat="nr_free_pages 100000", free_kib=6_400_000), 64),
        (arm(64, 2048, vmstat="nr_free_pages 100000", free_kib=400_016), 4),
        (arm(2048, 1048576, vmstat="nr_free_pages 3", free_kib=192), 4),  # too few to tell
    ],
)
def test_ordinary_pages_are_those_of_the_host_and_64_kib_may_be_huge(
    tmp_path: Path, files: dict[str, str], base_kib: int
) -> None:
    for cell in only(directory(tmp_path, files)).topology.cells:
        ordinary, *huge = cell.page_pools
        assert (ordinary.size_kib, ordinary.total) == (base_kib, 8192 * 1024 // base_kib)
        assert all(pool.size_kib > base_kib and not pool.total for pool in huge)


def test_huge_pages_of_64_kib_in_json_are_not_cut_as_ordinary_ones(tmp_path: Path) -> None:
    cell = {
        "id": 0,
        "cpuset": [0],
        "pcpuset": [1],
        "memory": 1024,
        "mempages": [[4, 1024 * 256, 0, 0], [64, 1024, 0, 0], [2048, 100, 0, 0]],
    }
    path = tmp_path / "arm.json"
    path.write_text(json.dumps({"cells": [cell]}))
    sizes = {pool.size_kib: pool.total for pool in only(path).topology.cells[0].page_pools}
    assert sizes == {4: (1024 - 64 - 200) * 256, 64: 1024, 2048: 100}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pcpuset": [1, 0]}, "cpu_in_both_sets"),
        ({"mempages": [[4, 1000, 0, 1001]]}, "pages_reserved_exceed_total"),
    ],
)
def test_our_json_is_held_to_what_a_host_must_not_say(
    tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    cell = {"id": 0, "cpuset": [0], "pcpuset": [1], "memory": 1024, **change}
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"cells": [cell]}))
    assert refused(path).code == code


def test_sets_that_split_a_core_and_one_set_for_both_uses_are_said(tmp_path: Path) -> None:
    split = CpuSets(shared=mask_of([0, 2]), dedicated=mask_of([4, 6, 7]))
    notes = only(directory(tmp_path, two_nodes()), split).notes
    assert [note.split(" are one core")[0] for note in notes] == [
        "threads 0,4",
        "threads 2,6",
        "threads 3,7",
    ]
    cell = {"id": 0, "cpuset": [0, 1], "pcpuset": [0, 1], "memory": 1024}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"cells": [cell]}))
    (note,) = only(path).notes
    assert note.startswith("CPUs 0-1 are in the shared and the dedicated set")


def test_a_trait_that_cannot_be_one_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(OURS | {"traits": ["HW_CPU_X86_VMX", "CUSTOM_FAST", "fast"]}))
    refusal = refused(path)
    assert (refusal.code, refusal.key) == ("trait_unknown", "traits")
    assert "'fast'" in refusal.message


def test_a_key_that_is_there_twice_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text('{"cells": [{"id": 0, "cpuset": [0], "memory": 1024, "memory": 2048}]}')
    assert (refused(path).code, refused(path).key) == ("key_twice", "memory")
