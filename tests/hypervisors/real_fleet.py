"""A whole system whose hosts have libvirt: for the tests with real guests, and for the demo."""

from __future__ import annotations

import os
import re
import subprocess
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from tests.acceptance.fleet import TIMES, Fleet, Services
from tests.environment import libvirt_hosts
from tests.environment.libvirt_hosts import LibvirtHost
from tests.limits import wait_for

GUEST_S = 90.0


class RealFleet:
    """A fleet whose hosts have libvirt; guests are known by their names."""

    def __init__(self, fleet: Fleet, daemons: dict[str, LibvirtHost], store: Path) -> None:
        self.fleet = fleet
        self.daemons = daemons
        self._store = store
        fleet.add("conductor", 1)
        fleet.add("scheduler", 1)
        for daemon in daemons.values():
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
                *("--vcpus", "1", "--memory-mb", "128"),
                *("--extra-spec", "hw:cpu_policy=dedicated"),
                *("--extra-spec", "hw:watchdog_action=reset"),
                *("--extra-spec", "hw:serial_port_count=2"),
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

    def logged(self, name: str) -> str:
        """What a guest has written to its console, as `instances console-log` prints it."""
        text: str = self.fleet.command("instances", "console-log", name)["text"]
        return text

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

    def domain(self, instance_id: str, daemon: LibvirtHost) -> Element:
        """The XML of a guest's domain, as libvirt has it."""
        command = ["virsh", "--connect", daemon.uri, "dumpxml", instance_id]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found: Element = fromstring(printed)
        return found

    def folders(self) -> set[tuple[str, str]]:
        """Every guest that has disks, with its host; what was left half done is named as well."""
        found = set()
        for name in self.daemons:
            disks = self.fleet.hypervisor(name) / "disks"
            for path in disks.iterdir() if disks.is_dir() else ():
                if path.is_dir():
                    found.add((path.name, name))
                found |= {
                    (str(left.relative_to(disks)), name)
                    for pattern in ("*.making", "*.part", "*.empty")
                    for left in path.glob(pattern)
                }
        return found

    def emulators(self) -> set[tuple[str, str]]:
        """Every QEMU process that runs, with its host: by what is in its command line."""
        found = set()
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            if guest := re.search(r"guest=instance-([0-9a-f-]{36})", words):
                found |= {
                    (guest[1], name)
                    for name in self.daemons
                    if f"{self.fleet.hypervisor(name)}/disks" in words
                }
        return found

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


@contextmanager
def real_fleet(services: Services, folder: Path, image: Path) -> Iterator[RealFleet]:
    """Run conductor, scheduler and two hosts with libvirt, east and west; end all that was made."""
    daemons = libvirt_hosts.start(("east", "west"), folder / "daemons")
    fleet = Fleet(services, folder, TIMES)
    running = {daemon.name: daemon for daemon in daemons}
    try:
        for daemon in daemons:
            wait_for(daemon.answers, f"libvirt on {daemon.name}", 60.0, poll_s=0.2)
        found = RealFleet(fleet, running, folder / "store")
        found.start(image)
        yield found
    finally:
        fleet.close()
        libvirt_hosts.stop([*running.values()])
