"""Huge pages of this very machine: those that another process holds are not offered."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.hardware import PagePool
from models.hardware.host_config import host_config
from tests.environment import libvirt_hosts
from tests.workers.test_this_host import CAPABILITIES
from workers.inventory.this_host import ThisHost

POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
PAGES = 8
_MAP_HUGETLB = 0x40000


@pytest.fixture
def huge_pages() -> Iterator[int]:
    """Pages beside those that the machine had; they are given back at the end."""
    reason = libvirt_hosts.why_not()
    if reason is not None:
        pytest.skip(reason)
    before = int(POOL.read_text())
    POOL.write_text(str(before + PAGES))
    try:
        yield int(POOL.read_text())
    finally:
        POOL.write_text(str(before))


def the_pool() -> PagePool:
    host = ThisHost(host_config(), Path("/"), 0, lambda: CAPABILITIES, lambda: ())
    cells = host.hardware().topology.cells
    pools = [pool for cell in cells for pool in cell.page_pools if pool.size_kib == 2048]
    return PagePool(
        2048, sum(pool.total for pool in pools), 0, sum(pool.reserved for pool in pools)
    )


def test_pages_that_another_process_holds_are_not_offered(huge_pages: int) -> None:
    before = the_pool()
    assert before.total == huge_pages
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB
    with mmap.mmap(-1, 2 * 2**21, flags=flags) as others:
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(others)), 1, 2 * 2**21)
        during = the_pool()
    assert (during.total, during.reserved) == (huge_pages, before.reserved + 2)
    assert the_pool() == before
