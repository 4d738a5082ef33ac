"""The whole system with real guests: what operators do with them, and what the guests say of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleet import TIMES, Fleet, Services
from tests.environment import libvirt_hosts
from tests.environment.libvirt_hosts import LibvirtHost
from tests.limits import wait_for

GUEST_S = 90.0


class RealFleet:
    """A fleet whose hosts have libvirt; guests are known by their names."""

    def __init__(self, fleet: Fleet, daemons: list[LibvirtHost], store: Path) -> None:
        self.fleet = fleet
        self.daemons = {daemon.name: daemon for daemon in daemons}
        self._store = store
        fleet.add("conductor", 1)
        fleet.add("scheduler", 1)
        for daemon in daemons:
            fleet.add_libvirt_host(
                daemon.name,
                *("--libvirt", daemon.uri, "--migration-uri", daemon.migration_uri),
                *("--migration-address", "127.0.0.1", "--image-store", f"file://{store}"),
                *("--image-folder", str(libvirt_hosts.CACHE), "--image-cache-gib", "1"),
                *("--disk-port", "0"),
                *("--shared-cpus", "0", "--dedicated-cpus", "1"),
            )

    def start(self, image: Path) -> None:
        """Start every process, and define what guests are made of."""
        self.fleet.start()
        self.fleet.until_greeted()
        said = self.fleet.command
        said("images", "create", "tiny", "--source", str(image), "--format", "raw")
        for name, *more in (
            ("plain", "--vcpus", "1", "--memory-mb", "128"),
            (
                "pinned",
                "--vcpus",
                "1",
                "--memory-mb",
                "128",
                "--extra-spec",
                "hw:cpu_policy=dedicated",
            ),
            ("roomy", "--vcpus", "1", "--memory-mb", "160", "--root-gb", "1"),
        ):
            said("flavors", "create", name, *more)

    def do(self, *words: str) -> Any:
        """Run a command that waits for its operation, which must succeed."""
        return self.fleet.command(*words, "--wait")

    def show(self, name: str) -> dict[str, Any]:
        """What the database says of an instance."""
        found: dict[str, Any] = self.fleet.command("instances", "show", name)
        return found

    def console(self, name: str) -> str:
        """What a guest has written on the host where it is now."""
        shown = self.show(name)
        folder = self.fleet.hypervisor(shown["host"]) / "guests" / shown["id"]
        log = folder / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def says(self, name: str, pattern: str, times: int = 1) -> list[str]:
        """Wait until a guest has written something so many times; return what it wrote."""

        def look() -> list[str] | None:
            found = re.findall(pattern, self.console(name), re.MULTILINE)
            return found if len(found) >= times else None

        return wait_for(look, f"{name} to write {pattern}", GUEST_S, poll_s=0.2)

    def type(self, name: str, text: str, answer: str) -> None:
        """Type a line into the console of a guest, and wait until it has written the answer.

        QEMU reads a terminal only while somebody has it open.
        """
        shown = self.show(name)
        daemon = self.daemons[shown["host"]]
        terminal = subprocess.run(
            ["virsh", "--connect", daemon.uri, "ttyconsole", shown["id"]],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        console = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        try:
            tty.setraw(console)
            os.write(console, f"{text}\n".encode())
            self.says(name, answer)
        finally:
            os.close(console)

    def domains(self) -> set[tuple[str, str]]:
        """Every domain of every daemon, with its host."""
        found = set()
        for daemon in self.daemons.values():
            listed = subprocess.run(
                ["virsh", "--connect", daemon.uri, "list", "--all", "--uuid"],
                check=True,
                capture_output=True,
                text=True,
            )
            found |= {(uuid, daemon.name) for uuid in listed.stdout.split()}
        return found


@pytest.fixture(scope="module")
def real(
    tiny_image: Path,
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealFleet]:
    """Conductor, scheduler and two hosts with libvirt."""
    folder = tmp_path_factory.mktemp("real")
    daemons = libvirt_hosts.start(("east", "west"), folder / "daemons")
    services = Services(fresh_vhost(), fresh_database(), redis_url)
    fleet = Fleet(services, folder, TIMES)
    try:
        for daemon in daemons:
            wait_for(daemon.answers, f"libvirt on {daemon.name}", 60.0, poll_s=0.2)
        found = RealFleet(fleet, daemons, folder / "store")
        found.start(tiny_image)
        yield found
    finally:
        fleet.close()
        libvirt_hosts.stop(daemons)


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


def test_a_pinned_guest_is_on_the_cpu_that_was_claimed(real: RealFleet) -> None:
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
    real.do("delete", "pinned")


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
