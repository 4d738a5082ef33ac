"""The three processes over real RabbitMQ, PostgreSQL and Redis, as an operator runs them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.environment.variables import CHECKOUT
from tests.limits import limit_s

COMMAND = [sys.executable, "-m", "conductor"]
FORBIDDEN_ON_HOSTS = (
    "sqlalchemy",
    "psycopg",
    "alembic",
    "models.tables",
    "conductor.store.sql.sql_store",
)


@dataclass
class Site:
    """Settings of one system, and the processes that were started in it."""

    variables: dict[str, str]
    logs: Path
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def environment(self, role: str = "") -> dict[str, str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith("CONDUCTOR_")}
        ours = dict(self.variables)
        if role == "compute":
            del ours["CONDUCTOR_DATABASE_URL"]
        return {**kept, **ours}

    def serve(self, role: str, *more: str) -> None:
        """Start a process and return when it says `ready`."""
        name = "-".join((role, *more[1:2]))
        with (self.logs / name).open("w") as log:
            process = subprocess.Popen(
                [*COMMAND, "serve", role, *more],
                cwd=CHECKOUT,
                env=self.environment(role),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.processes[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (self.logs / name).read_text()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=CHECKOUT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=limit_s(60),
            check=False,
        )


@pytest.fixture(scope="module")
def site(
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A system of one conductor, one scheduler and two hosts."""
    directory = tmp_path_factory.mktemp("site")
    variables = {
        "CONDUCTOR_BROKER_URL": fresh_vhost(),
        "CONDUCTOR_DATABASE_URL": fresh_database(),
        "CONDUCTOR_RESULT_URL": redis_url,
        "CONDUCTOR_STATE_DIR": str(directory / "state"),
        "CONDUCTOR_HEARTBEAT_S": "1",
    }
    here = Site(variables, directory)
    assert here.run("db", "upgrade").returncode == 0
    here.serve("conductor")
    here.serve("scheduler")
    for host in ("alpha", "beta.example"):
        here.serve("compute", "--host", host)
    yield here
    for process in here.processes.values():
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_build_over_services_becomes_active(site: Site) -> None:
    flavor = site.run("flavors", "create", "small", "--vcpus", "1", "--memory-mb", "256")
    assert flavor.returncode == 0, flavor.stderr
    assert site.run("images", "create", "cirros").returncode == 0
    built = site.run("build", "--flavor", "small", "--image", "cirros", "--count", "4", "--wait")
    assert built.returncode == 0, built.stderr
    rows = json.loads(site.run("instances", "list", "--state", "active").stdout)
    assert len(rows) == 4
    hosts = json.loads(site.run("hosts", "list").stdout)
    assert {host["name"]: host["state"] for host in hosts} == {"alpha": "up", "beta.example": "up"}


def test_health_sees_every_process(site: Site) -> None:
    result = site.run("health")
    assert result.returncode == 0, result.stdout
    states = {row["name"]: row["state"] for row in json.loads(result.stdout)}
    assert states == dict.fromkeys(
        ("broker", "results", "database", "conductors", "schedulers", "hosts"), "ok"
    )


def test_a_compute_worker_never_holds_the_databases_code(site: Site) -> None:
    """Loading everything that `serve compute` loads brings none of it in."""
    names = ", ".join(repr(name) for name in FORBIDDEN_ON_HOSTS)
    program = (
        "import sys; from conductor.cli.command_registry import command_line;"
        "command_line(['serve', 'compute']); import conductor.processes.compute.compute_process;"
        f"print([name for name in ({names}) if name in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        env=site.environment("compute"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--host", "a/b"), "host is 'a/b'"),
        (("--host", "x", "--topology", "/nowhere.json"), "/nowhere.json"),
        (("--host", "x", "--hypervisor", "odd"), "--hypervisor is odd"),
        (("--host", "x", "--habit", "odd=1"), "habit is odd"),
        (("--host", "x", "--habit", "refused=2"), "from 0 to 1"),
        ((), "--host"),
    ],
)
def test_a_wrong_worker_is_refused_in_one_line(
    site: Site, arguments: tuple[str, ...], named: str
) -> None:
    refused = site.run("serve", "compute", *arguments)
    assert refused.returncode == 2
    assert named in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_serve_without_a_broker_is_a_wrong_setting(site: Site) -> None:
    without = Site({"CONDUCTOR_STATE_DIR": site.variables["CONDUCTOR_STATE_DIR"]}, site.logs)
    refused = without.run("serve", "conductor")
    assert refused.returncode == 2
    assert "CONDUCTOR_BROKER_URL" in refused.stderr


def test_a_second_worker_of_one_state_directory_is_refused(site: Site) -> None:
    refused = site.run("serve", "compute", "--host", "alpha")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_every_process_drains_on_sigterm_and_logs_json(site: Site) -> None:
    for process in site.processes.values():
        process.send_signal(signal.SIGTERM)
    codes = {name: process.wait(timeout=limit_s(40)) for name, process in site.processes.items()}
    assert codes == dict.fromkeys(site.processes, 0)
    for name in site.processes:
        for line in (site.logs / name).read_text().splitlines():
            assert json.loads(line)["event"]
    away = site.run("health")
    assert away.returncode == 4
    states = {row["name"]: row["state"] for row in json.loads(away.stdout)}
    assert (states["conductors"], states["schedulers"]) == ("away", "away")
