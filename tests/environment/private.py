"""Start and stop servers of our own, beside whatever else runs on the machine.

Each has its data under one private directory and listens on the loopback interface only, on the
first free port above its usual one. All of it is thrown away by `stop`.
"""

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.environment import probes, variables

COMMAND_TIMEOUT_S = 120
# A node also listens this far above its port, as RabbitMQ does by itself.
RABBITMQ_DISTRIBUTION_OFFSET = 20_000
HIGHEST_PORT = 45_000


class StartError(Exception):
    """A private server could not be started; the text is one line for a person."""


@dataclass(frozen=True)
class Server:
    """A private server: what tests need to reach it, and how to stop it.

    `stop` is a command line, so that a later process can run it.
    """

    port: int
    values: Mapping[str, str]
    stop: Sequence[str]


def base_directory() -> Path:
    """Return the directory of this checkout's private servers, created for us alone.

    Not inside the checkout: PostgreSQL does not run as root, and another account often cannot
    enter the folder where root has checked out.
    """
    checkout = sha256(str(variables.CHECKOUT).encode()).hexdigest()[:8]
    path = Path(tempfile.gettempdir()) / f"vm-conductor-services-{os.getuid()}-{checkout}"
    path.mkdir(mode=0o755, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise StartError(f"{path} belongs to somebody else")
    return path


def start_postgresql(directory: Path) -> Server:
    """Start a PostgreSQL server that trusts the user postgres."""
    binaries = _postgresql_binaries()
    if binaries is None:
        raise StartError("PostgreSQL's initdb and pg_ctl are not installed")
    port = free_port(5432)
    data = directory / "postgresql"
    # The server refuses to run as root, so root lends the folder to the account it came with.
    account = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()
    _empty(data, "postgres" if account else None)
    control = (*account, str(binaries / "pg_ctl"), "-D", str(data / "data"))
    _run([*account, str(binaries / "initdb"), "-D", str(data / "data"), "-U", "postgres",
          "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"])  # fmt: skip
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    _run([*control, "-l", str(data / "log"), "-o", options, "-w", "start"])
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    return Server(port, {variables.DATABASE_URL: url}, (*control, "-m", "immediate", "stop"))


def start_redis(directory: Path) -> Server:
    """Start a Redis server that keeps nothing on disk."""
    if shutil.which("redis-server") is None:
        raise StartError("redis-server is not installed")
    port = free_port(6379)
    home = directory / "redis"
    _empty(home, None)
    _run(["redis-server", "--daemonize", "yes", "--bind", "127.0.0.1", "--port", str(port),
          "--dir", str(home), "--save", "", "--logfile", str(home / "log")])  # fmt: skip
    stop = ("redis-cli", "-h", "127.0.0.1", "-p", str(port), "shutdown", "nosave")
    return Server(port, {variables.RESULT_URL: f"redis://127.0.0.1:{port}/0"}, stop)


def start_rabbitmq(directory: Path) -> Server:
    """Start a RabbitMQ node with its own name, cookie and data."""
    binaries = _rabbitmq_binaries()
    if binaries is None:
        raise StartError("rabbitmq-server is not installed")
    port = free_port(5672)
    home = directory / "rabbitmq"
    _empty(home, None)
    (home / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{port}\n")
    # An empty file of ours, or the node would take its name from the system's.
    (home / "rabbitmq-env.conf").write_text("")
    (home / "enabled_plugins").write_text("[].\n")
    wrapper = home / "run"
    wrapper.write_text(_rabbitmq_wrapper(home, port, binaries))
    wrapper.chmod(0o700)
    _run([str(wrapper), "rabbitmq-server", "-detached"])
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    control = (str(wrapper), "rabbitmqctl")
    stop_command = (*control, "-q", "stop")
    try:
        _wait_until_answering(url, home / "log")
    except StartError:
        stop(stop_command)
        raise
    values = {variables.BROKER_URL: url, variables.BROKER_CONTROL: shlex.join(control)}
    return Server(port, values, stop_command)


STARTERS: Mapping[str, Callable[[Path], Server]] = {
    "RabbitMQ": start_rabbitmq,
    "PostgreSQL": start_postgresql,
    "Redis": start_redis,
}


def stop(command: Sequence[str]) -> None:
    """Stop a private server; one that has already gone is fine."""
    subprocess.run(list(command), check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)


def free_port(usual: int) -> int:
    """Return the first port above the usual one on which nothing listens on the loopback."""
    for port in range(usual + 1, HIGHEST_PORT):
        if _bindable(port):
            return port
    raise StartError(f"no free port above {usual}")


def _bindable(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _rabbitmq_wrapper(home: Path, port: int, binaries: Path) -> str:
    settings = {
        "HOME": home,
        "RABBITMQ_NODENAME": f"conductor-tests-{port}@localhost",
        "RABBITMQ_DIST_PORT": port + RABBITMQ_DISTRIBUTION_OFFSET,
        "RABBITMQ_CONF_ENV_FILE": home / "rabbitmq-env.conf",
        "RABBITMQ_CONFIG_FILE": home / "rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": home / "enabled_plugins",
        "RABBITMQ_MNESIA_BASE": home / "data",
        "RABBITMQ_LOG_BASE": home / "log",
        "RABBITMQ_PID_FILE": home / "pid",
    }
    exports = [f"export {name}={shlex.quote(str(value))}" for name, value in settings.items()]
    run = f'program=$1; shift; exec {shlex.quote(str(binaries))}/"$program" "$@"'
    return "\n".join(["#!/bin/sh", *exports, run, ""])


def _wait_until_answering(url: str, logs: Path) -> None:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while isinstance(probes.rabbitmq(url), probes.Silent):
        if time.monotonic() > deadline:
            raise StartError(f"RabbitMQ does not answer after {COMMAND_TIMEOUT_S} s, see {logs}")
        time.sleep(0.2)


def _postgresql_binaries() -> Path | None:
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    packaged = sorted(versions, key=lambda found: float(found.parts[-3]), reverse=True)
    on_path = shutil.which("initdb")
    found = packaged[0] if packaged else on_path and Path(on_path)
    return Path(found).parent if found else None


def _rabbitmq_binaries() -> Path | None:
    # Debian's /usr/sbin/rabbitmq-server insists on the system's account and folders.
    packaged = Path("/usr/lib/rabbitmq/bin")
    if (packaged / "rabbitmq-server").exists():
        return packaged
    on_path = shutil.which("rabbitmq-server")
    return Path(on_path).parent if on_path else None


def _empty(directory: Path, owner: str | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    if owner is not None:
        account = pwd.getpwnam(owner)
        os.chown(directory, account.pw_uid, account.pw_gid)


def _run(command: Sequence[str]) -> None:
    # Output goes to a file: a daemon that inherits a pipe would keep the reader waiting for ever.
    with tempfile.TemporaryFile("w+") as output:
        try:
            subprocess.run(
                list(command), check=True, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, timeout=COMMAND_TIMEOUT_S, cwd="/",
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            output.seek(0)
            lines = output.read().strip().splitlines() or [f"exit code {error.returncode}"]
            raise StartError(f"{shlex.join(command)}: {lines[-1]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartError(str(error)) from error
