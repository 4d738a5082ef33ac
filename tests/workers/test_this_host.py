"""The inventory of the machine itself: what is offered, what is refused, what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from models.errors import Rejected
from models.hardware import PagePool, cpus_of
from models.hardware.host_config import HostConfig, host_config
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from tests.workers.files import CPU, NODE, directory, pages, two_nodes
from workers.hypervisor.ports import GuestDomain, Power
from workers.inventory.this_host import (
    Capabilities,
    HostReading,
    ThisHost,
    hardware_of,
    pages_allocated,
    refuse_contradictions,
)

FILES = Path(__file__).parent / "libvirt_files"
CAPABILITIES = Capabilities(
    (FILES / "capabilities.xml").read_text(), (FILES / "domain-capabilities-kvm.xml").read_text()
)
DIVIDED = host_config(shared="0,4", dedicated="1-3,5-7")
HUGE = 2048


def reading(files: Mapping[str, str] | None = None, disk_gib: float = 100.5) -> HostReading:
    return HostReading(files or two_nodes(), int(disk_gib * 2**30))


def guest(
    power: Power = "running", pages_mib: int = 20, page_kib: int | None = HUGE
) -> GuestDomain:
    """A guest of ours on node 1 with memory of huge pages."""
    cell: dict[str, Any] = {
        "id": 0,
        "host_cell": 1,
        "cpuset": [0],
        "pcpuset": [],
        "memory": pages_mib,
        "pagesize": page_kib,
        "cpu_pinning": {},
        "cpuset_reserved": [],
    }
    spec = GuestDefinition(
        name="g", vcpus=1, memory_mib=pages_mib, disk_gb=1, placement={"cells": [cell]}
    )
    return GuestDomain(InstanceId("3f1b1f0e-0000-4000-8000-000000000001"), power, spec)


def test_sets_divide_the_cpus_and_the_rest_is_the_hosts() -> None:
    hardware = hardware_of(reading(), host_config(shared="4", dedicated="2-3,6-7"), {})
    zero, one = hardware.topology.cells
    assert (cpus_of(zero.shared_cpus), cpus_of(zero.dedicated_cpus)) == ((4,), ())
    assert (cpus_of(one.shared_cpus), cpus_of(one.dedicated_cpus)) == ((), (2, 3, 6, 7))
    assert hardware.disk_gb == 100


def test_without_sets_every_cpu_is_shared() -> None:
    cells = hardware_of(reading(), host_config(), {}).topology.cells
    assert [cpus_of(cell.shared_cpus) for cell in cells] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert not any(cell.dedicated_cpus for cell in cells)


def test_huge_pages_that_others_hold_are_not_offered() -> None:
    """Node 1 has 500 pages, of which the kernel says that 12 are in use."""
    held = pages_allocated([guest(pages_mib=8)])
    assert held == {(1, HUGE): 4}
    pool = hardware_of(reading(), host_config(), held).topology.cells[1].page_pools[1]
    assert pool == PagePool(HUGE, 500, 0, 8)


@pytest.mark.parametrize(("power", "held"), [("paused", 4), ("nostate", 4), ("shutdown", 0),
                                             ("suspended", 0), ("crashed", 0)])  # fmt: skip
def test_only_guests_in_memory_have_pages(power: Power, held: int) -> None:
    assert pages_allocated([guest(power, pages_mib=8)])[1, HUGE] == held


def test_a_guest_that_cannot_be_read_or_has_ordinary_pages_holds_none() -> None:
    unreadable = GuestDomain(InstanceId("x"), "running", None, "its XML cannot be read")
    assert pages_allocated([unreadable, guest(page_kib=None)]) == {}


def test_reserved_pages_may_be_those_that_others_hold() -> None:
    reserve = [{"node": 1, "size": "2MB", "count": 5}]
    pools = hardware_of(reading(), host_config(reserved=reserve), {}).topology.cells[1].page_pools
    assert pools[1].reserved == 12
    reserve = [{"node": 1, "size": "2MB", "count": 50}]
    pools = hardware_of(reading(), host_config(reserved=reserve), {}).topology.cells[1].page_pools
    assert pools[1].reserved == 50


@pytest.mark.parametrize(
    ("config", "code", "named"),
    [
        (host_config(shared="0-8"), "cpu_unknown", "CPU 8 "),
        (host_config(shared="0,4", dedicated="9,12"), "cpu_unknown", "CPU 9,12 "),
        (host_config(dedicated="1-3,6-7"), "core_split", "CPU 1 without CPU 5"),
        (host_config(shared="1", dedicated="5"), "core_split", "CPU 5 without CPU 1"),
        (HostConfig(0b110, 0b100, None), "cpu_in_both_sets", "CPU 2 "),
        (host_config(reserved=[{"node": 2, "size": "2MB", "count": 1}]),
         "reserved_pages_unknown", "NUMA cell 2: the host has 0, 1"),
        (host_config(reserved=[{"node": 1, "size": "16MB", "count": 1}]),
         "reserved_pages_unknown", "16384 KiB: NUMA cell 1 has 4, 2048, 1048576 KiB"),
        (host_config(reserved=[{"node": 1, "size": "1GB", "count": 4}]),
         "pages_reserved_exceed_total", "NUMA cell 1 has 3"),
    ],
)  # fmt: skip
def test_settings_that_contradict_the_machine_are_refused_by_name(
    config: HostConfig, code: str, named: str
) -> None:
    with pytest.raises(Rejected) as error:
        refuse_contradictions(two_nodes(), config)
    assert error.value.code == code
    assert named in error.value.message


def test_settings_that_fit_the_machine_pass() -> None:
    refuse_contradictions(two_nodes(), DIVIDED)
    refuse_contradictions(two_nodes(), host_config(shared="4"))
    refuse_contradictions(two_nodes(), host_config())


def test_a_cpu_that_goes_while_guests_run_is_left_out() -> None:
    files = two_nodes() | {f"{CPU}/online": "0-6", f"{CPU}/cpu3/topology/thread_siblings_list": "3"}
    one = hardware_of(reading(files), DIVIDED, {}).topology.cells[1]
    assert cpus_of(one.dedicated_cpus) == (2, 3, 6)


def test_what_changes_is_seen_at_the_next_reading_and_what_does_not_is_equal(
    tmp_path: Path,
) -> None:
    root = directory(tmp_path / "root", two_nodes() | {"proc/cpuinfo": "flags\t: sse sse2 avx"})
    domains: list[GuestDomain] = []
    host = ThisHost(DIVIDED, tmp_path, 0, lambda: CAPABILITIES, lambda: domains, (), root)
    host.checked()
    before = host.hardware()
    assert host.hardware() == before
    assert before.disk_gb > 0
    assert {
        "HW_CPU_X86_SSE2",
        "COMPUTE_STORAGE_BUS_VIRTIO",
        "COMPUTE_STORAGE_BUS_IDE",
        "CUSTOM_MACHINE_TYPE_PC_Q35_7_2",
    } <= set(before.traits)
    assert "HW_CPU_X86_AVX" not in before.traits  # libvirt withholds it
    directory(root, pages(1, HUGE, 600, 600))
    (after,) = [cell for cell in host.hardware().topology.cells if cell.id == 1]
    assert after.page_pools[1] == PagePool(HUGE, 600)
    directory(root, {f"{NODE}/node0/meminfo": "Node 0 MemTotal: 8387975 kB"})
    assert host.hardware().topology.cells[0].memory_mib == 8191


def test_this_very_machine_is_read() -> None:
    host = ThisHost(host_config(), Path("/"), 0, lambda: CAPABILITIES, lambda: ())
    host.checked()
    hardware = host.hardware()
    assert sum(cell.shared_cpus.bit_count() for cell in hardware.topology.cells) > 0
    assert sum(cell.memory_mib for cell in hardware.topology.cells) > 0
    assert hardware.disk_gb > 0
