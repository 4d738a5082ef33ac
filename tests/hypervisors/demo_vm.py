"""`make demo-vm`: two hosts with libvirt on this machine, and real guests that live their lives.

Conductor, scheduler and two compute workers are real processes on a vhost, a database and a Redis
number of their own; all of it, guests and daemons too, is gone at the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from tests.acceptance.fleet import Services
from tests.environment import isolation, libvirt_hosts, variables
from tests.environment.warm_processes import run_warm
from tests.hypervisors.real_fleet import RealFleet, real_fleet

_NOT_HERE: Final = 4
"""The contract's exit code for a service that is away."""
_LINES: Final = 6


class Show:
    """What a spectator sees: steps with their time, and the words of guests."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._began = time.monotonic()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show that something is being done, and then that it is."""
        began = time.monotonic()
        with self._console.status(f"[bold]{what}"):
            yield
        took = time.monotonic() - began
        self._console.print(f"[green]✓[/] {what} [dim]{took:.1f} s")

    def words(self, title: str, text: str) -> None:
        """Show what a guest has written to its console."""
        last = "\n".join(text.strip().splitlines()[-_LINES:])
        self._console.print(Panel(Text(last), title=title, title_align="left", expand=False))

    def text(self, text: str) -> None:
        """Show lines as they are."""
        self._console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)


def main() -> int:
    """Run the demo; return its exit code."""
    show = Show()
    reason = libvirt_hosts.why_not()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return _NOT_HERE
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="demo-vm-")))
        with show.step("an image for tiny guests: a kernel, busybox, and a script that talks"):
            image = libvirt_hosts.tiny_image()
        with show.step("two hosts with libvirt, a conductor, a scheduler, two compute workers"):
            fleet = opened.enter_context(real_fleet(_services(opened), folder, image))
        _tell(show, fleet)
    show.text(
        "\non real hosts: `deploy/hypervisor/install` on each, and there `conductor serve compute "
        "--host NAME --hypervisor libvirt`\n"
        "for all others: `conductor serve conductor` and `conductor serve scheduler`; "
        "docs/first-host.md has every command"
    )
    return 0


def _services(opened: ExitStack) -> Services:
    """Return a corner of the services that belongs to this demo."""
    found = variables.current()
    vhost = isolation.rabbitmq_vhost(found[variables.BROKER_URL], found[variables.BROKER_CONTROL])
    return Services(
        opened.enter_context(vhost),
        opened.enter_context(isolation.postgresql_database(found[variables.DATABASE_URL])),
        opened.enter_context(isolation.redis_database(found[variables.RESULT_URL])),
    )


def _tell(show: Show, fleet: RealFleet) -> None:
    with show.step("build `web`, and `db` with a CPU of its own"):
        fleet.do("build", "--flavor", "plain", "--image", "tiny", "--name", "web")
        fleet.do("build", "--flavor", "pinned", "--image", "tiny", "--name", "db")
    with show.step("both have booted"):
        fleet.says("web", r"^READY")
        fleet.says("db", r"^READY")
    show.words("instances console-log db", fleet.logged("db"))
    show.text(_drawn(fleet))
    show.text(f"  libvirt says of `db`: {_pins(fleet)}")
    with show.step("write a mark onto the disk of `web`"):
        fleet.type("web", "mark vda demo", r"^MARKED vda demo")
    home = fleet.show("web")["host"]
    before = fleet.says("web", r"^TICK (\d+)")[-1]
    with show.step(f"move `web` away from {home} while it runs, with its disk"):
        fleet.do("live-migrate", "web")
        ticks = fleet.says("web", r"^TICK (\d+)", times=2)
    host = fleet.show("web")["host"]
    show.words(f"instances console-log web, on {host}", fleet.logged("web"))
    show.text(
        f"  its counter goes on: {before} on {home} before the move, {ticks[0]} first on {host}"
    )
    with show.step("shelve `web`: no host has it any more, its disk is an image"):
        fleet.do("shelve", "web", "--offload")
    with show.step("unshelve it"):
        fleet.do("unshelve", "web")
        marks = fleet.says("web", r"^DISK vda .*marker=(\S*)")
    show.text(f"  its disk still has the mark: {marks[-1]}")
    with show.step("delete both"):
        fleet.do("delete", "web")
        fleet.do("delete", "db")


def _pins(fleet: RealFleet) -> str:
    """Return the pins of `db`, as its domain has them."""
    shown = fleet.show("db")
    pins = fleet.domain(shown["id"], fleet.daemons[shown["host"]]).iter("vcpupin")
    return ", ".join(f"vCPU {pin.get('vcpu')} on CPU {pin.get('cpuset')}" for pin in pins)


def _drawn(fleet: RealFleet) -> str:
    """Return `hosts map`, as an operator sees it in a terminal."""
    return run_warm(
        "conductor",
        ["hosts", "map"],
        environment={**fleet.fleet.environment, "FORCE_COLOR": "1", "COLUMNS": "100"},
        timeout_s=60.0,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
