"""Serve Placement on a free loopback port; run by the Python that has Placement installed.

With the argument `one-at-a-time` requests wait for each other: on SQLite the published server
answers 500 ("database is locked") to those that write at once.

Says the port on stdout once it answers, and ends when its standard input does, so that no server
outlives the run that started it, however that ended.
"""

import importlib
import os
import sys
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own."""

    daemon_threads = True
    request_queue_size = 128


class QuietHandler(WSGIRequestHandler):
    """Leaves the log to Placement, and asks nobody for the name of an address."""

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """Return the address as it is."""
        return str(self.client_address[0])


def one_at_a_time(application: Any) -> Any:
    """Return the application behind a lock."""
    lock = threading.Lock()

    def locked(environ: Any, start_response: Any) -> list[bytes]:
        with lock:
            return list(application(environ, start_response))

    return locked


def main() -> None:
    """Serve until standard input ends."""
    # Only this Python has it: whoever checks types has not.
    application = importlib.import_module("placement.wsgi").init_application()
    if "one-at-a-time" in sys.argv:
        application = one_at_a_time(application)
    server = make_server("127.0.0.1", 0, application, ThreadedServer, QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
