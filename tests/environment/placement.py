"""A real OpenStack Placement server on loopback, installed into an environment of its own.

Installed on the first use (`placement-requirements.txt`, about 20 s) and kept in `.venv-placement`
until the requirements change; a server lives as long as whoever started it.
"""

import fcntl
import os
import select
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.environment import variables
from tests.environment.private import StartError, base_directory

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "placement-requirements.txt"
ENVIRONMENT = variables.CHECKOUT / ".venv-placement"
INSTALL_TIMEOUT_S = 600
START_TIMEOUT_S = 120

# What tests write; traits and resource classes stay, since the server keeps them in memory.
_ROWS = (
    "allocations", "inventories", "consumers", "resource_provider_traits",
    "resource_provider_aggregates", "placement_aggregates", "projects", "users",
)  # fmt: skip


@dataclass(frozen=True)
class PlacementServer:
    """A server that runs: where it is, and its database, a file where it is SQLite."""

    url: str
    database: Path

    def empty(self) -> None:
        """Forget every provider and every consumer."""
        with closing(sqlite3.connect(self.database, timeout=30)) as connection, connection:
            for table in _ROWS:
                connection.execute(f"DELETE FROM {table}")
            # Children first, or the rule between parents and children objects.
            connection.execute("UPDATE resource_providers SET parent_provider_id = NULL")
            connection.execute("UPDATE resource_providers SET root_provider_id = NULL")
            connection.execute("DELETE FROM resource_providers")


@contextmanager
def server(database_url: str = "") -> Iterator[PlacementServer]:
    """Yield a new server with an empty database: SQLite of its own, or the one that is named.

    Raises `StartError` with one line for a person.
    """
    python = installed()
    # Beside the private servers, so that `make stop` also takes what a killed run left.
    with TemporaryDirectory(prefix="placement-", dir=base_directory()) as name:
        home = Path(name)
        database = home / "placement.sqlite"
        how = () if database_url else ("one-at-a-time",)
        # It asks its cursors for the last row's id, which only the older driver has.
        named = database_url.replace("+psycopg:", "+psycopg2:")
        _configure(home, named or f"sqlite:///{database}?timeout=30")
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-I", str(HERE / "placement_server.py"), *how],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home,
                env={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(home)},
            )  # fmt: skip
        try:
            yield PlacementServer(f"http://127.0.0.1:{_port(process, home / 'log')}", database)
        finally:
            process.kill()
            process.communicate()


def ensure(report: Callable[[str], None]) -> None:
    """Install Placement ahead of the tests; where that fails, say so and fail no others."""
    try:
        installed(report)
        report(f"{'Placement':<11} installed in {ENVIRONMENT.name}, started by the tests")
    except StartError as error:
        report(str(error))


def installed(report: Callable[[str], None] = print) -> Path:
    """Return the Python that has Placement, after installing it where that is still to do."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    wanted = sha256(REQUIREMENTS.read_bytes()).hexdigest()
    with ENVIRONMENT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == wanted):
            report(f"installing Placement into {ENVIRONMENT.name} (about 20 s)")
            _run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)])
            _run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check",
                  "--no-compile", "--require-hashes", "-r", str(REQUIREMENTS)])  # fmt: skip
            stamp.write_text(wanted)
    return python


def _configure(home: Path, database_url: str) -> None:
    (home / "placement.conf").write_text(
        "[DEFAULT]\nuse_stderr = true\ndefault_log_levels = \n"
        "[api]\nauth_strategy = noauth2\n"
        f"[placement_database]\nconnection = {database_url}\nsync_on_startup = true\n"
        "sqlite_synchronous = false\n"
        # As operators should set it: its own second tries count what the first wrote as in use
        # before, and so over-commit. With none of them a lost race is the client's to try again.
        "[placement]\nallocation_conflict_retry_count = 1\n"
        f"[oslo_policy]\npolicy_file = {home / 'policy.yaml'}\n"
    )
    # Only a service account may reshape; without Keystone there are none.
    (home / "policy.yaml").write_text('"placement:reshaper:reshape": "role:admin"\n')


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    line = process.stdout.readline() if ready else b""
    if not line.strip().isdigit():
        last = (log.read_text(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise StartError(f"Placement did not start: {last}")
    return int(line)


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(
            list(command), check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no reason given"]
        raise StartError(f"Placement cannot be installed: {lines[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"Placement cannot be installed: {error}") from error
