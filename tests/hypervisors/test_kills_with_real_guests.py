"""Whatever dies or is damaged while real guests are built: nothing twice, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from models.lifecycle import OperationState
from tests.acceptance.fleet import Services
from tests.disks.image_files import qcow2_file
from tests.environment import libvirt_hosts
from tests.hypervisors.real_fleet import RealFleet, real_fleet
from tests.limits import wait_for

END_S: Final = 120.0


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
    with real_fleet(services, tmp_path_factory.mktemp("kills"), tiny_image) as found:
        yield found


@pytest.fixture
def nothing_left(real: RealFleet) -> Iterator[None]:
    """Let a test end with no domain, disk or process on any host."""
    yield
    wait_for(
        lambda: not real.domains() and not real.folders() and not real.emulators(),
        "no guest, disk or process to be left",
        quiet_s=10.0,
    )


def kill_worker(real: RealFleet, host: str) -> None:
    real.fleet.members[f"compute-{host}"].kill()


def kill_conductor(real: RealFleet, _: str) -> None:
    real.fleet.members["conductor-1"].kill()


Kill = Callable[[RealFleet, str], None]
KILLS: Final[dict[str, Kill]] = {
    "worker": kill_worker,
    "conductor": kill_conductor,
}


def one_guest(real: RealFleet, name: str) -> None:
    """Wait until a guest is where the database says, and nowhere else in any form."""

    def look() -> bool:
        shown = real.show(name)
        here = {(shown["id"], shown["host"])}
        return real.domains() == real.folders() == real.emulators() == here

    wait_for(look, f"{name} to be on its host alone", 20.0, poll_s=0.5)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("kill", KILLS)
def test_a_guest_is_built_once_whatever_dies(real: RealFleet, kill: str) -> None:
    said = real.fleet.command
    build = said("build", "--flavor", "plain", "--image", "tiny", "--name", kill)["id"]
    host = wait_for(lambda: _host_of(real, kill), "a host to be chosen", poll_s=0.005)
    KILLS[kill](real, host)
    real.fleet.start()
    ended = real.fleet.ended(build, END_S)
    assert ended.state is OperationState.SUCCEEDED, ended.error
    one_guest(real, kill)
    real.do("delete", kill)


def _host_of(real: RealFleet, name: str) -> str | None:
    found: str | None = real.show(name).get("host")
    return found


@pytest.mark.usefixtures("nothing_left")
def test_a_worker_that_starts_before_libvirt_waits_for_it(real: RealFleet) -> None:
    kill_worker(real, "east")
    libvirt_hosts.kill(real.daemons["east"])
    member = real.fleet.members["compute-east"]
    member.start()
    wait_for(lambda: "libvirt_away" in member.tail(), "the worker to say that libvirt is away")
    real.daemons["east"] = libvirt_hosts.started_again(real.daemons["east"])
    member.wait_ready()
    real.do("build", "--flavor", "plain", "--image", "tiny", "--name", "late", "--host", "east")
    one_guest(real, "late")
    real.do("delete", "late")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("kind", ["truncated", "changed"])
def test_an_image_that_is_not_what_was_said_builds_nothing_and_leaves_nothing(
    real: RealFleet, kind: str
) -> None:
    path = libvirt_hosts.CACHE / f"odd-{kind}.qcow2"
    said = real.fleet.command
    try:
        qcow2_file(path, 2, 1)
        content = path.read_bytes()
        if kind == "truncated":
            path.write_bytes(content[: len(content) // 2])
        said("images", "create", kind, "--source", str(path), "--format", "qcow2")
        if kind == "changed":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        build = said("build", "--flavor", "roomy", "--image", kind, "--name", kind)["id"]
        assert real.fleet.ended(build, END_S).state is OperationState.FAILED
    finally:
        path.unlink(missing_ok=True)
    shown = real.show(kind)
    assert shown["state"] == "error"
    assert WHY[kind] in str(shown["fault"])
    assert "Traceback" not in str(shown["fault"])
    real.do("delete", kind)


WHY: Final = {"truncated": "exceeding the end of the file", "changed": "sha256"}
