"""Libvirt, with the disks of a real host, keeps the contract of the hypervisor port."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor.processes.compute.libvirt_options import LibvirtOptions
from conductor.processes.compute.libvirt_storage import libvirt_disks
from models.ids import InstanceId
from models.messages.guests.image_files import ImageFile
from tests.contracts.hypervisor.suite import HypervisorContract, Pair, pair_of
from tests.hypervisors.conftest import Host
from workers.disks.disk_files import disk_files
from workers.disks.disk_records import disks_of
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHypervisor
from workers.images.file_work import FileWork, checksum_of

BLOCK = 512
AT_BLOCK = 31 * (1 << 20) // BLOCK
"""Behind the file system of the tiny guest, and where that writes no mark of its own."""


class DiskHost:
    """A daemon with a folder of disks, a cache and an image store, as `serve compute` has them."""

    def __init__(self, host: Host, image: Path, folder: Path) -> None:
        self.name = host.daemon.name
        self._host = host
        self._image = image
        self._disks = folder / self.name / "disks"
        options = LibvirtOptions(
            migration_address="127.0.0.1",
            image_store=f"file://{folder / 'store'}",
            image_folders=(image.parent,),
            cache_gib=1,
            disk_port=0,
        )
        real = host.hypervisor
        disks = libvirt_disks(self.name, folder / self.name, options)
        self.hypervisor = LibvirtHypervisor(real.control, real.host, disks, real.read_hardware)

    def image(self) -> ImageFile:
        """The tiny guest, where it was made."""
        return ImageFile(
            id="tiny",
            source=self._image.as_uri(),
            format="raw",
            checksum=checksum_of(self._image, FileWork()),
            size_bytes=self._image.stat().st_size,
            virtual_size_bytes=self._image.stat().st_size,
        )

    def write(self, instance_id: InstanceId, text: str) -> None:
        """Write a block of the root disk."""
        root = self._root(instance_id)
        pattern = root.with_name("pattern")
        pattern.write_bytes(text.encode().ljust(BLOCK, b"\0"))
        write = f"write -s {pattern} {AT_BLOCK * BLOCK} {BLOCK}"
        _run("qemu-io", "-f", root.suffix[1:], "-c", write, str(root))
        pattern.unlink()

    def read(self, instance_id: InstanceId) -> str:
        """Read that block, be the guest running or not."""
        root = self._root(instance_id)
        copy = root.with_name("block")
        # `count` is of the whole disk, what is skipped included.
        block = (f"bs={BLOCK}", f"count={AT_BLOCK + 1}", f"skip={AT_BLOCK}")
        _run(
            "qemu-img",
            "dd",
            "-U",
            "-f",
            root.suffix[1:],
            "-O",
            "raw",
            *block,
            f"if={root}",
            f"of={copy}",
        )
        text = copy.read_bytes()[:BLOCK].rstrip(b"\0").decode(errors="replace")
        copy.unlink()
        return text

    def crash(self, instance_id: InstanceId) -> None:
        """Kill its QEMU."""
        os.kill(self._host.daemon.emulator_pid(instance_id), signal.SIGKILL)

    def until_it_listens(self, instance_id: InstanceId) -> None:
        """Wait until it has started what heeds its power button."""
        self._host.says(instance_id, r"^TICK 1$")

    def _root(self, instance_id: InstanceId) -> Path:
        return disk_files(disks_of(self._disks, instance_id))[0].path


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def disk_hosts(
    hosts: list[Host], tiny_image: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[DiskHost]:
    """The two hosts, each with disks of its own and a store that both see."""
    folder = tmp_path_factory.mktemp("storage")
    return [DiskHost(host, tiny_image, folder) for host in hosts]


class TestLibvirtHypervisor(HypervisorContract):
    """The contract, on two daemons."""

    @pytest.fixture
    def pair(self, disk_hosts: list[DiskHost]) -> Iterator[Pair]:
        """Two hosts with libvirt."""
        yield from pair_of(*disk_hosts)
