"""A system with three small hosts, shared by all tests here, and the commands that reach it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor.cli.requests.wait_display import await_system
from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_system import Embedded
from conductor.processes.simulated_hosts import Plan, made
from conductor.settings import PREFIX, Settings
from conductor.store.open_store import open_store
from models.tables.schema_upgrade import upgrade
from tests.cli.running import Cli, runner
from workers.hypervisor.simulated import SimulatedHypervisor

HOSTS = {
    "alpha": Plan(cells=2, cores=4, threads=2, memory_mib=8192, shared_cores=1, huge_mib=2048),
    "beta": Plan(cells=1, cores=8, threads=1, memory_mib=8192),
    "gamma": Plan(cells=1, cores=4, threads=1, memory_mib=4096),
}


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the shell has set, a test sees none of it, and nobody's state directory."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CONDUCTOR_STATE_DIR", str(tmp_path))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process, without any system."""
    return runner(capsys)


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """A running system with a flavor, an image and three hosts."""
    settings = Settings(state_dir=tmp_path_factory.mktemp("system"), tick_s=0.2, heartbeat_s=0.5)
    upgrade(settings.store_url)
    store = open_store(settings.store_url)
    hosts = [ComputeHost(name, SimulatedHypervisor(made(plan))) for name, plan in HOSTS.items()]
    running = Embedded(settings, hosts, store)
    running.start()
    await_system(store, len(hosts))
    yield running
    running.stop()
    store.close()


@pytest.fixture
def here(system: Embedded, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process that reaches the running system."""
    monkeypatch.setenv("CONDUCTOR_STATE_DIR", str(system.settings.state_dir))
    return cli


@pytest.fixture
def stocked(here: Cli) -> Cli:
    """The same, with what builds need: flavors `small` and `pinned`, image `cirros`."""
    if here("flavors", "show", "small").code != 0:
        size = ("--vcpus", 1, "--memory-mb", 256)
        assert here("flavors", "create", "small", *size).code == 0
        pinned = ("--extra-spec", "hw:cpu_policy=dedicated")
        made_pinned = here("flavors", "create", "pinned", "--vcpus", 2, "--memory-mb", 512, *pinned)
        assert made_pinned.code == 0
        huge = ("--vcpus", 64, "--memory-mb", 256, *pinned)
        assert here("flavors", "create", "monster", *huge).code == 0
        assert here("images", "create", "cirros", "--name", "CirrOS").code == 0
    return here
