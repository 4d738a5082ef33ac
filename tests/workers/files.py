"""Descriptions of hosts for the tests of inventory, written from numbers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from tests.environment.variables import CHECKOUT

SYSFS_DATA = CHECKOUT.parent / "shared" / "data" / "sysfs"

Files = Mapping[str, str]
CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def data_file(name: str) -> Path:
    """A tarball of the public data; the test fails, and says so, where it is not there."""
    path = SYSFS_DATA / name
    assert path.is_file(), f"the public data is missing: {path}"
    return path


def two_nodes() -> dict[str, str]:
    """A tree of two nodes with two two-thread cores each, 1 GiB and 2 MiB pages on node 1."""
    files = {f"{CPU}/online": "0-7", f"{NODE}/online": "0-1"}
    for cpu in range(8):
        other = cpu + 4 if cpu < 4 else cpu - 4
        below = f"{CPU}/cpu{cpu}/topology"
        files[f"{below}/thread_siblings_list"] = ",".join(map(str, sorted((cpu, other))))
        files[f"{below}/physical_package_id"] = str(cpu % 4 // 2)
    for node, cpus in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        files[f"{NODE}/node{node}/cpulist"] = cpus
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal:    8388999 kB"
    files |= pages(1, 1048576, 3, 1) | pages(1, 2048, 512, 500, surplus=12)
    return files


def pages(node: int, size_kib: int, total: int, free: int, surplus: int = 0) -> dict[str, str]:
    """The files of one page pool of a node."""
    below = f"{NODE}/node{node}/hugepages/hugepages-{size_kib}kB"
    return {
        f"{below}/nr_hugepages": str(total),
        f"{below}/free_hugepages": str(free),
        f"{below}/surplus_hugepages": str(surplus),
    }


def directory(path: Path, files: Files) -> Path:
    """Write a tree of files below a directory, each with the newline the kernel ends it with."""
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return path


def tarball(
    path: Path, files: Files, mode: Literal["w", "w:gz", "w:bz2", "w:xz"] = "w:bz2"
) -> Path:
    """Write a tarball of files."""
    with tarfile.open(path, mode) as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            content = (text + "\n").encode()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def capabilities(cells: Iterable[str]) -> str:
    """The XML that libvirt would give for these cells."""
    inside = "".join(cells)
    return (
        "<capabilities><host><uuid>4c4c4544</uuid><topology>"
        f"<cells num='1'>{inside}</cells></topology></host></capabilities>"
    )


def xml_cell(
    number: int, memory_kib: int, pools: Mapping[int, int], cpus: Iterable[tuple[int, str]]
) -> str:
    """One cell of that XML: pools by size in KiB, CPUs with their siblings (empty: offline)."""
    pages_xml = "".join(
        f"<pages unit='KiB' size='{size}'>{count}</pages>" for size, count in pools.items()
    )
    cpus_xml = "".join(
        f"<cpu id='{cpu}' socket_id='{number}' core_id='{cpu}' siblings='{siblings}'/>"
        if siblings
        else f"<cpu id='{cpu}'/>"
        for cpu, siblings in cpus
    )
    return (
        f"<cell id='{number}'><memory unit='KiB'>{memory_kib}</memory>{pages_xml}"
        f"<distances><sibling id='{number}' value='10'/></distances><cpus>{cpus_xml}</cpus></cell>"
    )
