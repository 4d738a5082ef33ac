"""A headless browser, driven over WebDriver: plain HTTP with JSON, so that no library is needed."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.environment import browser
from tests.environment.private import free_port
from tests.limits import Limit, limit_s

START_S = 30.0
PATIENCE_S = 15.0
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1400,1000"),
)


class Page:
    """What the browser shows."""

    def __init__(self, session_url: str) -> None:
        self._session = session_url

    def go(self, url: str) -> None:
        """Open an address and return when it is loaded."""
        _call(self._session + "/url", {"url": url})

    def run(self, script: str) -> Any:
        """Return what a function's body in JavaScript returns on the page."""
        return _call(self._session + "/execute/sync", {"script": script, "args": []})

    def text(self) -> str:
        """Return what a person can read on the page."""
        return str(self.run("return document.body.innerText"))

    def until(self, look: Callable[[str], bool], what: str) -> str:
        """Return the page's text once it is as expected."""
        limit = Limit(PATIENCE_S)
        while not look(text := self.text()):
            assert not limit.over, f"waited for the page to {what}:\n{text[:3_000]}"
            time.sleep(0.1)
        return text

    def save_picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(_call(self._session + "/screenshot")))


@contextmanager
def open_page(profile: Path) -> Iterator[Page]:
    """Yield a page of a browser of its own, with a fresh profile."""
    found = browser.find()
    assert found is not None, f"there is no browser to drive: {browser.HOW}"
    port = free_port(9515)
    driver = subprocess.Popen(
        [found.driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_until_ready(base)
        arguments = [*_ARGUMENTS, f"--user-data-dir={profile}"]
        options = {"binary": found.program, "args": arguments}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        session = _call(base + "/session", {"capabilities": {"alwaysMatch": wanted}})
        url = f"{base}/session/{session['sessionId']}"
        yield Page(url)
        _call(url, method="DELETE")
    finally:
        driver.terminate()
        driver.wait(timeout=limit_s(20))


def _wait_until_ready(base: str) -> None:
    limit = Limit(START_S)
    while True:
        try:
            if _call(base + "/status")["ready"]:
                return
        except OSError:
            assert not limit.over, "the browser's driver does not answer"
        time.sleep(0.05)


def _call(url: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=limit_s(60)) as answer:
        return json.load(answer)["value"]
