"""Disks on a simulated host: made, saved, carried over, and refused where they are not proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.root_disks import RootDisk
from tests.workers.world import HARDWARE, VM, spec
from workers.hypervisor.simulated import SimulatedHypervisor

AWAITED = RootDisk(origin="copy")


def host(directory: Path | None = None) -> SimulatedHypervisor:
    return SimulatedHypervisor(HARDWARE, directory)


def spawned(hypervisor: SimulatedHypervisor, root_disk: RootDisk, power: str) -> None:
    hypervisor.spawn(VM, spec().model_copy(update={"root_disk": root_disk, "power": power}))


def disk(hypervisor: SimulatedHypervisor) -> str | None:
    domain = hypervisor.domain(VM)
    assert domain is not None
    return domain.disk


def test_a_guest_whose_disk_is_awaited_does_not_start_before_it_has_come() -> None:
    source, target = host(), host()
    spawned(source, RootDisk(), "shutdown")
    source.write_disk(VM, "data")
    spawned(target, AWAITED, "shutdown")
    for call in (target.power_on, target.check_disk, target.offer_disk, target.snapshot):
        with pytest.raises(HostRefused) as refused:
            call(VM)
        assert refused.value.code == "disk_awaited"
    offered = source.offer_disk(VM)
    assert target.take_disk(VM, offered) == offered.checksum
    target.power_on(VM)
    assert disk(target) == "data"
    assert disk(source) == "data"


def test_a_disk_that_is_not_what_its_checksum_says_leaves_nothing() -> None:
    source, target = host(), host()
    spawned(source, RootDisk(), "shutdown")
    damaged = source.offer_disk(VM).model_copy(update={"ticket": {"content": "another"}})
    spawned(target, AWAITED, "shutdown")
    with pytest.raises(HostRefused) as refused:
        target.take_disk(VM, damaged)
    assert refused.value.code == "disk_damaged"
    assert disk(target) is None
    with pytest.raises(HostRefused):
        spawned(host(), RootDisk(origin="snapshot", disk=damaged), "running")


def test_the_disk_of_a_guest_that_runs_is_not_offered() -> None:
    hypervisor = host()
    spawned(hypervisor, RootDisk(), "running")
    with pytest.raises(HostRefused) as refused:
        hypervisor.offer_disk(VM)
    assert refused.value.code == "still_running"


def test_what_is_on_a_disk_survives_its_process(tmp_path: Path) -> None:
    hypervisor = host(tmp_path)
    spawned(hypervisor, RootDisk(), "running")
    hypervisor.write_disk(VM, "data")
    saved = host(tmp_path).snapshot(VM)
    other = host()
    other.spawn(
        InstanceId(VM),
        spec().model_copy(update={"root_disk": RootDisk(origin="snapshot", disk=saved)}),
    )
    assert disk(other) == "data"


def test_what_is_unreadable_of_a_guest_is_said_in_words_of_ours(tmp_path: Path) -> None:
    (tmp_path / f"{VM}.domain").write_text("{secret", encoding="utf-8")
    [domain] = host(tmp_path).domains()
    assert domain.spec is None
    assert str(tmp_path) not in domain.fault
    assert "secret" not in domain.fault
