"""Two hosts with libvirt, and guests that say over their consoles what they see."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models.hardware import HostTopology
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from tests.environment import libvirt_hosts
from tests.environment.libvirt_hosts import LibvirtHost
from tests.hypervisors.plain_disks import PlainDisks
from tests.limits import wait_for
from workers.hypervisor.libvirt.connection import LibvirtConnection
from workers.hypervisor.libvirt.domain_control import DomainControl
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHost as Reached
from workers.hypervisor.libvirt.libvirt_hypervisor import LibvirtHypervisor
from workers.hypervisor.ports import Hardware


@dataclass(frozen=True)
class Host:
    """A host: its daemon, and our hypervisor on it."""

    daemon: LibvirtHost
    hypervisor: LibvirtHypervisor

    def said(self, instance_id: InstanceId) -> str:
        """What a guest has written to its console on this host."""
        log = self.hypervisor.control.context.guests / instance_id / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def says(self, instance_id: InstanceId, pattern: str) -> re.Match[str]:
        """Wait until a guest has written something; return the match."""
        return wait_for(
            lambda: re.search(pattern, self.said(instance_id), re.MULTILINE),
            f"{pattern} in the console of {instance_id} on {self.daemon.name}",
            quiet_s=60.0,
        )

    def ticks(self, instance_id: InstanceId) -> list[int]:
        """The counter that a guest has in memory, as it has said it here."""
        return [
            int(tick) for tick in re.findall(r"^TICK (\d+)", self.said(instance_id), re.MULTILINE)
        ]


@pytest.fixture(scope="session")
def tiny_image() -> Path:
    """The disk image of the tiny guest."""
    _need_real_guests()
    return libvirt_hosts.tiny_image()


@pytest.fixture(scope="session")
def hosts(tiny_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Two hosts, empty at first; whatever is left on them ends with the run."""
    folder = tmp_path_factory.mktemp("hosts")
    daemons = libvirt_hosts.start(("A", "B"), folder)
    try:
        for daemon in daemons:
            wait_for(daemon.answers, f"libvirt on {daemon.name}", quiet_s=60.0, poll_s=0.2)
        yield [Host(daemon, _hypervisor(daemon, tiny_image)) for daemon in daemons]
    finally:
        libvirt_hosts.stop(daemons)


@pytest.fixture
def guest(hosts: list[Host]) -> Iterator[InstanceId]:
    """The id of a guest that is gone from both hosts after the test."""
    instance_id = InstanceId(str(uuid.uuid4()))
    yield instance_id
    for host in hosts:
        host.hypervisor.destroy(instance_id)


def definition(**more: Any) -> GuestDefinition:
    """A guest of one vCPU and 128 MiB."""
    fields = {"name": "tiny", "vcpus": 1, "memory_mib": 128, "disk_gb": 1, "project_id": "demo"}
    return GuestDefinition(**{**fields, **more})


def placed(*cells: dict[str, Any]) -> dict[str, Any]:
    """A placement of cells on the one NUMA cell of this machine."""
    empty = {"cpuset": [], "pagesize": None, "cpu_pinning": {}, "cpuset_reserved": []}
    return {
        "cells": [
            {"id": number, "host_cell": 0, "pcpuset": [], **empty, **cell}
            for number, cell in enumerate(cells)
        ]
    }


def _hypervisor(daemon: LibvirtHost, image: Path) -> LibvirtHypervisor:
    guests = daemon.folder / "guests"
    guests.mkdir()
    context = HostContext("qemu", guests, {0: 0b11})
    control = DomainControl(LibvirtConnection(daemon.uri), context)
    reached = Reached(daemon.migration_uri, "127.0.0.1")
    disks = PlainDisks(guests, image)
    hardware: Callable[[], Hardware] = lambda: Hardware(HostTopology())  # noqa: E731  # read at each call
    return LibvirtHypervisor(control, reached, disks, hardware)


def _need_real_guests() -> None:
    reason = libvirt_hosts.why_not()
    if reason is None:
        return
    if os.environ.get("TEST_HYPERVISORS") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
