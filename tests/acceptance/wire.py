"""A wire between one process and a server, which the test can hold or cut."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

_LOOK_S = 0.02


class Wire:
    """Passes bytes on between a port of its own and a server, each connection apart.

    `hold` keeps what our process sends; what the server sends still arrives. What is held when
    the process dies never was sent, as with bytes in a dead machine's buffers.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open = threading.Event()
        self._open.set()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.held = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Let nothing more through to the server."""
        self.held.clear()
        self._open.clear()

    def release(self) -> None:
        """Let through what is held, and all that comes."""
        self._open.set()

    def cut(self) -> int:
        """End every connection at both ends; return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _shut(pair)
        return len(pairs)

    def close(self) -> None:
        """Cut, and take no more connections."""
        _shut((self._listener,))
        self.cut()
        self._open.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                try:
                    theirs = socket.create_connection(self._server)
                except OSError:
                    ours.close()
                    continue
                pair = (ours, theirs)
                with self._lock:
                    self._pairs.add(pair)
                for passing in (self._outward, self._inward):
                    threading.Thread(target=passing, args=pair, daemon=True).start()

    def _outward(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Pass on what our process sends; what is held when it dies is lost."""
        kept = b""
        with suppress(OSError, ValueError):
            while True:
                if select.select([ours], [], [], _LOOK_S)[0]:
                    data = ours.recv(65_536)
                    if not data:
                        break
                    kept += data
                if kept and self._open.is_set():
                    theirs.sendall(kept)
                    kept = b""
                elif kept:
                    self.held.set()
        self._end((ours, theirs))

    def _inward(self, ours: socket.socket, theirs: socket.socket) -> None:
        with suppress(OSError):
            while data := theirs.recv(65_536):
                ours.sendall(data)
        self._end((ours, theirs))

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        _shut(pair)


def _shut(sockets: tuple[socket.socket, ...]) -> None:
    for item in sockets:
        with suppress(OSError):
            item.shutdown(socket.SHUT_RDWR)
        item.close()
