"""Processes of ours that start in a tenth of a second: forked from one with all imports done.

A start costs one to three seconds of CPU, nearly all of it imports, and the tests of whole systems
start hundreds. What is forked is a real process of its own: it has its own connections, gets real
signals and dies a real death; only its imports were done before. That the command line starts from
nothing too is shown by the tests that type it (`test_documented_commands`, `test_commands_serve`).
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from tests.environment.variables import CHECKOUT

_MESSAGE_BYTES: Final = 1 << 18
_FDS: Final = 3


class WarmProcess:
    """A process that runs a module with arguments, as `python -m MODULE ARGUMENTS` does.

    What it offers is what `subprocess.Popen` calls so; `stdin` and `stdout` are pipes of text.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        stderr: int | IO[Any] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path = CHECKOUT,
    ) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        error = 2 if stderr is None else stderr if isinstance(stderr, int) else stderr.fileno()
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(os.environ if environment is None else environment),
            "folder": str(folder),
        }
        try:
            self._life = _template().start(request, (theirs_in, theirs_out, error))
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.pid = self._life.pid
        self.stdin = os.fdopen(ours_in, "w")
        self.stdout = os.fdopen(ours_out)

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal that ended it, None while it runs."""
        return self._life.returncode

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended; raise `subprocess.TimeoutExpired`."""
        if not self._life.ended.wait(timeout):
            raise subprocess.TimeoutExpired(["python", "-m", "…"], timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


def run_warm(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end and return what it printed, as `subprocess.run` does."""
    ours, theirs = os.pipe()
    with os.fdopen(ours) as errors:
        process = WarmProcess(module, arguments, stderr=theirs, environment=environment)
        os.close(theirs)
        process.stdin.close()
        printed: list[str] = []
        reader = threading.Thread(target=lambda: printed.append(errors.read()), daemon=True)
        reader.start()
        watch = threading.Timer(timeout_s, process.kill)
        watch.start()
        with process.stdout:
            out = process.stdout.read()
        code = process.wait()
        watch.cancel()
        reader.join()
    return subprocess.CompletedProcess([module, *arguments], code, out, printed[0])


class _Life:
    """What is known of one forked process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = threading.Event()


class _Template:
    """The process that has imported everything, as its parent sees it."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [
                sys.executable,
                "-m",
                "tests.environment.warm_template",
                str(theirs.fileno()),
            ]
            self._process = subprocess.Popen(command, cwd=CHECKOUT, pass_fds=[theirs.fileno()])
        self._turn = threading.Lock()
        self._started = threading.Semaphore(0)
        self._lives: dict[int, _Life] = {}
        self._newest: _Life | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, request: Mapping[str, Any], fds: Sequence[int]) -> _Life:
        """Have a process forked; return once it is."""
        with self._turn:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self._line.sendmsg([json.dumps(request).encode()], rights)
            self._started.acquire()
            assert self._newest is not None, "the template of warm processes has ended"
            return self._newest

    def close(self) -> None:
        """End the template; what was forked from it goes on."""
        self._line.close()
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        """Take in, in order, which processes have been forked and how they ended."""
        with contextlib.suppress(OSError):
            while message := self._line.recv(_MESSAGE_BYTES):
                pid, *ended = json.loads(message)
                if not ended:
                    self._newest = self._lives[pid] = _Life(pid)
                    self._started.release()
                else:
                    life = self._lives.pop(pid)
                    [life.returncode] = ended
                    life.ended.set()
        self._newest = None
        self._started.release()


@functools.cache
def _template() -> _Template:
    template = _Template()
    atexit.register(template.close)
    return template
