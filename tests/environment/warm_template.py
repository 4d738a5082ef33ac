"""The process that warm processes are forked from: it has imported what they need, and waits.

It imports, and does nothing else: no thread, no connection, no settings. Run by
`tests.environment.warm_processes` with the number of a socket, which says what to fork.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from conductor.cli.command_registry import MODULES

_MESSAGE_BYTES: Final = 1 << 18
_FDS: Final = 3
_LATER: Final = (
    "alembic.command",
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.concurrency.thread",
    "celery.worker.worker",
    "conductor.processes.compute.compute_process",
    "conductor.processes.control.conductor_process",
    "conductor.processes.control.scheduler_process",
    "kombu.transport.pyamqp",
    "psycopg",
    "redis",
    "sqlalchemy.dialects.postgresql.psycopg",
    "tests.services.stand_ins",
)
"""What processes import only once they run."""


def main(line: socket.socket) -> None:
    """Fork what is asked for and tell how it ended, until the other end is closed."""
    for name in (*(f"conductor.cli.commands.{name}" for name in set(MODULES.values())), *_LATER):
        importlib.import_module(name)
    assert threading.active_count() == 1, "a thread would not be there in what is forked"
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            _tell_who_ended(line)
        if line.fileno() in ready:
            message, rights, _, _ = line.recvmsg(_MESSAGE_BYTES, socket.CMSG_LEN(_FDS * 4))
            if not message:
                return
            fds = array.array("i")
            fds.frombytes(rights[0][2])
            _fork(line, json.loads(message), list(fds), (woken, wake))


def _fork(
    line: socket.socket, request: Mapping[str, Any], fds: list[int], pipe: tuple[int, int]
) -> None:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        line.close()
        for fd in pipe:
            os.close(fd)
        _become(request, fds)
    for fd in fds:
        os.close(fd)
    line.send(json.dumps([pid]).encode())


def _become(request: Mapping[str, Any], fds: list[int]) -> NoReturn:
    """Be the process that was asked for, and end as it does."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"]]
    code: object = 0
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter ends a program
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    number = code if isinstance(code, int) else int(code is not None)
    # As at the end of any program: threads that are no daemons are awaited, what waits is written.
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter calls at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(number)


def _tell_who_ended(line: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        line.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
