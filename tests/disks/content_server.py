"""An HTTP server of a folder: ranges, PUT, listing, and answers that go wrong on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


class ContentServer(ThreadingHTTPServer):
    """Serves `folder`; `cut_after` ends each answer after so many bytes, `gets` are all GETs."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.cut_after: int | None = None
        self.ranges = True
        self.gets: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(folder: Path) -> Iterator[ContentServer]:
    with ContentServer(folder) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ContentServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.gets.append((self.path, self.headers.get("Range")))
        if self.path == "/":
            names = [path.name for path in self.server.folder.iterdir()]
            self._answer(200, json.dumps(names).encode())
            return
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            self._answer(404, b"")
            return
        content, begins = path.read_bytes(), 0
        if self.server.ranges and (wanted := self.headers.get("Range")):
            begins = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self._answer(206 if begins else 200, content[begins:], begins)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        (self.server.folder / self.path.lstrip("/")).write_bytes(content)
        self._answer(201, b"")

    def do_DELETE(self) -> None:
        (self.server.folder / self.path.lstrip("/")).unlink()
        self._answer(204, b"")

    def _answer(self, status: int, body: bytes, begins: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if begins:
            end = begins + len(body)
            self.send_header("Content-Range", f"bytes {begins}-{end - 1}/{end}")
        self.end_headers()
        self.wfile.write(body[: self.server.cut_after])
        self.close_connection = True
