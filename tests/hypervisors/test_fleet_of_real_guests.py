"""The whole system with real guests: what operators do with them, and what the guests say of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conductor.store import OperationRecord
from models.lifecycle import OperationState
from tests.acceptance.fleet import Services
from tests.hypervisors.real_fleet import RealFleet, real_fleet
from tests.limits import wait_for


@pytest.fixture(scope="module")
def real(
    tiny_image: Path,
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealFleet]:
    """Conductor, scheduler and two hosts with libvirt."""
    services = Services(fresh_vhost(), fresh_database(), redis_url)
    with real_fleet(services, tmp_path_factory.mktemp("real"), tiny_image) as found:
        yield found


def test_a_guest_is_built_marked_moved_shelved_and_comes_back_with_its_data(
    real: RealFleet,
) -> None:
    real.do("build", "--flavor", "plain", "--image", "tiny", "--name", "life")
    real.says("life", r"^READY")
    assert real.says("life", r"^UUID (\S+)") == [real.show("life")["id"]]
    real.type("life", "mark vda first", r"^MARKED vda first")
    home = real.show("life")["host"]

    real.do("live-migrate", "life")
    away = real.show("life")["host"]
    assert away != home
    ticks = [int(tick) for tick in real.says("life", r"^TICK (\d+)", times=2)]
    assert ticks[0] > 1  # it was not started anew
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
    real.type("life", "read vda", r"^MARKER vda first")

    real.do("reboot", "life")
    assert real.says("life", r"^DISK vda .*marker=(\S*)")[-1] == "first"
    real.do("shelve", "life", "--offload")
    assert real.domains() == set()
    real.do("unshelve", "life")
    assert real.says("life", r"^DISK vda .*marker=(\S*)")[-1] == "first"
    real.do("delete", "life")
    assert real.domains() == set()


def test_a_machine_type_that_no_host_has_is_refused_by_name_before_any_is_chosen(
    real: RealFleet,
) -> None:
    said = real.fleet.command
    said("images", "create", "later", "--property", "hw_machine_type=pc-q35-99.0")
    build = said("build", "--flavor", "plain", "--image", "later", "--name", "later")
    ended = wait_for(lambda: _failed(real, build["id"]), "the build to be refused", 60.0)
    assert "2 cannot give their guests CUSTOM_MACHINE_TYPE_PC_Q35_99_0" in str(ended.error)
    assert real.domains() == set()


def _failed(real: RealFleet, operation_id: str) -> OperationRecord | None:
    operation = real.fleet.operation(operation_id)
    return operation if operation and operation.state is OperationState.FAILED else None


@pytest.mark.chaos
def test_a_cold_move_keeps_the_disk_and_a_resize_grows_it(real: RealFleet) -> None:
    real.do("build", "--flavor", "plain", "--image", "tiny", "--name", "cold")
    real.says("cold", r"^READY")
    real.type("cold", "mark vda kept", r"^MARKED vda kept")
    home = real.show("cold")["host"]
    real.do("migrate", "cold")
    assert real.show("cold")["host"] != home
    real.do("confirm", "cold")
    assert real.says("cold", r"^DISK vda .*marker=(\S*)")[-1] == "kept"
    real.do("resize", "cold", "--flavor", "roomy")
    real.do("confirm", "cold")
    disks = real.says("cold", r"^DISK vda sectors=(\d+) .*marker=(\S*)")
    assert disks[-1] == (str(2 * 1024 * 1024), "kept")
    real.do("delete", "cold")
    assert real.domains() == set()


def test_a_guest_is_on_the_cpu_and_has_the_hardware_that_its_flavor_asks_for(
    real: RealFleet,
) -> None:
    real.do("build", "--flavor", "pinned", "--image", "tiny", "--name", "pinned")
    shown = real.show("pinned")
    daemon = real.daemons[shown["host"]]
    pid = daemon.emulator_pid(shown["id"])
    vcpus = [
        (task / "status").read_text()
        for task in Path(f"/proc/{pid}/task").iterdir()
        if "CPU 0" in (task / "comm").read_text()
    ]
    assert [re.findall(r"Cpus_allowed_list:\s*(\S+)", status) for status in vcpus] == [["1"]]
    domain = real.domain(shown["id"], daemon)
    assert domain.find("devices/watchdog[@action='reset']") is not None
    assert len(domain.findall("devices/serial")) == 2
    wait_for(lambda: "READY" in real.logged("pinned"), "its console to say so", 90.0, 0.5)
    real.do("delete", "pinned")


@pytest.mark.chaos
def test_a_guest_whose_process_dies_is_reported_as_crashed_and_started_again(
    real: RealFleet,
) -> None:
    real.do("build", "--flavor", "plain", "--image", "tiny", "--name", "mortal")
    shown = real.show("mortal")
    daemon = real.daemons[shown["host"]]
    wait_for(
        lambda: _is_settled(real, shown["id"]), "the instance to have been left alone", 60.0, 0.5
    )
    os.kill(daemon.emulator_pid(shown["id"]), signal.SIGKILL)
    wait_for(
        lambda: real.show("mortal")["power_state"] == "crashed", "a report of the crash", 30.0, 0.2
    )
    assert real.show("mortal")["state"] == "stopped"
    real.do("start", "mortal")
    assert real.show("mortal")["power_state"] == "running"
    real.do("delete", "mortal")


def _is_settled(real: RealFleet, instance_id: str) -> bool:
    """Say whether a report may change the instance: its last change is long enough ago."""
    with real.fleet.store.read() as uow:
        return uow.now - real.fleet.instance(instance_id).updated_at > 31.0
