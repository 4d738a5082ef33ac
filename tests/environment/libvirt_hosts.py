"""Hosts with libvirt for the tests: daemons of their own beside each other, and a tiny guest."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DEPLOY = CHECKOUT / "deploy"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "vm-conductor-tests"
FIRST_PORT = 23_000
"""Other ports than the demo's: both may run at once."""
RUNS = 5
PORTS_OF_A_RUN = 200
PORTS_OF_A_HOST = 64
"""Runs beside each other have ports of their own: so many, and 1000 above them for migrations."""


@dataclass(frozen=True)
class LibvirtHost:
    """One running daemon."""

    name: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def uri(self) -> str:
        """How clients on this machine open it."""
        return f"qemu+unix:///system?socket={self.folder}/run/libvirt-sock"

    @property
    def migration_uri(self) -> str:
        """How the other daemons open it."""
        return f"qemu+tcp://127.0.0.1:{self.port}/system"

    @property
    def daemon_pid(self) -> int:
        """The process of libvirtd itself."""
        return int((self.folder / "run" / "libvirtd.pid").read_text())

    def emulator_pid(self, instance_id: str) -> int:
        """The process of QEMU that runs a guest."""
        pid = self.folder / "run" / "qemu" / f"instance-{instance_id}.pid"
        return int(pid.read_text())

    def answers(self) -> bool:
        """Say whether libvirt can be talked to; raise where it has ended."""
        log = self.folder / "log" / "libvirtd.log"
        assert self.process.poll() is None, f"libvirtd ended: {log.read_text()[-500:]}"
        asked = subprocess.run(
            ["virsh", "--connect", self.uri, "version"], check=False, capture_output=True
        )
        return asked.returncode == 0


def why_not() -> str | None:
    """Return why no real guests can be had on this machine; None where they can."""
    if os.geteuid() != 0:
        return "real guests need root: a libvirt daemon of their own, bridges, mounts"
    missing = [name for name in ("libvirtd", "qemu-img", "virsh") if shutil.which(name) is None]
    if missing:
        return f"real guests need {', '.join(missing)}: make hypervisor"
    try:
        import libvirt  # noqa: F401, PLC0415  # whether it is there is the question
    except ImportError:
        return "real guests need the binding of libvirt: make hypervisor"
    return None


def tiny_image() -> Path:
    """Return the disk image of the tiny guest, made once for each version of what makes it."""
    maker = DEPLOY / "tiny-guest"
    content = b"".join((maker / name).read_bytes() for name in ("build", "init"))
    image = CACHE / f"tiny-{hashlib.sha256(content).hexdigest()[:12]}.raw"
    if not image.exists():
        subprocess.run([maker / "build", image], check=True, timeout=300)
    return image


def start(names: Sequence[str], folder: Path) -> list[LibvirtHost]:
    """Start daemons side by side; the caller waits until they answer."""
    with _ports_of_this_run() as (first, lock):
        ports = range(first, first + PORTS_OF_A_RUN, PORTS_OF_A_HOST)
        return [
            LibvirtHost(name, folder / name, port, _run(name, folder / name, port, lock))
            for name, port in zip(names, ports, strict=False)
        ]


def kill(host: LibvirtHost) -> None:
    """SIGKILL a daemon; its guests run on."""
    os.kill(host.daemon_pid, signal.SIGKILL)
    host.process.wait(timeout=60)


def started_again(host: LibvirtHost) -> LibvirtHost:
    """Start a daemon that was killed, as the same host with the same ports."""
    lock = CACHE / f"ports-{(host.port - FIRST_PORT) // PORTS_OF_A_RUN}.lock"
    with lock.open("w") as inherited:
        # Not free if another host of this run has it, and then this one has it too.
        with suppress(BlockingIOError):
            fcntl.flock(inherited, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return replace(host, process=_run(host.name, host.folder, host.port, inherited.fileno()))


def stop(hosts: Sequence[LibvirtHost]) -> None:
    """End the daemons with their guests."""
    for host in hosts:
        host.process.terminate()
    for host in hosts:
        host.process.wait(timeout=60)


@contextmanager
def _ports_of_this_run() -> Iterator[tuple[int, int]]:
    """Give the first port that no other run has, and the lock that says so.

    The daemons inherit the lock: the ports are free again when the last of them has ended, however
    it did.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    for nth in range(RUNS):
        with (CACHE / f"ports-{nth}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield FIRST_PORT + nth * PORTS_OF_A_RUN, lock.fileno()
            return
    message = f"{RUNS} runs with libvirt daemons are under way on this machine: no ports are left"
    raise RuntimeError(message)


def _run(name: str, folder: Path, port: int, lock: int) -> subprocess.Popen[bytes]:
    script = str(DEPLOY / "hypervisor" / "host")
    command = [script, name, str(folder), str(port)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(lock,)
    )
