"""Speaks HTTP to one OpenStack Placement server: versions, credentials, retries, request ids."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import structlog
import tenacity

from models.errors import Broken, Rejected, Unreachable
from models.throttled_log import ThrottledLog

OLDEST: Final = (1, 38)
"""The oldest microversion that says all we ask for: consumers have types from it on."""
NEWEST: Final = (1, 39)
"""The newest one that we know."""

ANY_OF_TRAITS: Final = (1, 39)
"""The first that knows the question for any of several traits."""

READ_TRIES: Final = 4
GIVES_UP_AFTER_S: Final = 60.0
"""No further try begins so long after the first: a server that is slow is not helped by them."""

CONCURRENT_UPDATE: Final = "placement.concurrent_update"

# Candidates of a large fleet take a server many seconds.
_TIMEOUT: Final = httpx.Timeout(120.0, connect=5.0)
_REQUEST_ID: Final = "X-Openstack-Request-Id"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_VERSION_REFUSED: Final = 406
_WAIT: Final = tenacity.wait_random_exponential(multiplier=0.05, max=2.0)

_log = structlog.get_logger(__name__)

Version = tuple[int, int]
Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said: HTTP status, error code (empty where none), body, its request id."""

    status: int
    code: str
    body: Any
    request_id: str


@dataclass(frozen=True, slots=True)
class Question:
    """One request: method, path below the server's address, parameters, JSON body."""

    method: str
    path: str
    parameters: Parameters = ()
    body: Mapping[str, Any] | None = None


class PlacementClient:
    """Asks one server, in any number of threads.

    User and password in the URL go as basic credentials, a user alone as a token, and neither is
    ever shown. Reads are tried a few times when the server is away or fails; a write is not,
    since what became of it is unknown. Raises `Unreachable` (`placement_unreachable`), and
    `Rejected` for refused credentials (`placement_credentials`), a server that is too old
    (`placement_too_old`) and one that is none (`placement_url_invalid`).
    """

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        wait: tenacity.wait.wait_base = _WAIT,
        warnings: ThrottledLog | None = None,
    ) -> None:
        address, self._secrets = _address(url)
        self.shown = str(address)
        self._http = httpx.Client(base_url=address, timeout=_TIMEOUT, transport=transport)
        self._wait = wait
        self._warnings = warnings or ThrottledLog()
        self._lock = threading.Lock()
        self._version: Version | None = None

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def version(self) -> Version:
        """Return the microversion in use: the highest that the server and we both know."""
        with self._lock:
            if self._version is None:
                self._version = self._negotiated()
            return self._version

    def must_speak(self, needed: Version, what: str) -> None:
        """Raise `Rejected` (`placement_too_old`) where `what` needs a newer server."""
        spoken = self.version()
        if spoken < needed:
            message = f"{what} needs {_text(needed)}, and Placement at {self.shown} speaks "
            raise Rejected(
                "placement_too_old",
                message + _text(spoken),
                have=_text(spoken),
                need=_text(needed),
            )

    def send(self, question: Question, request_id: str = "") -> Answer:
        """Return the server's answer to one request, errors of the caller's making included.

        `request_id` is that of the operation it is for; the server logs it too.
        """
        major, minor = self.version()
        headers = {"OpenStack-API-Version": f"placement {major}.{minor}"}
        if request_id:
            headers[_REQUEST_ID] = f"req-{request_id.removeprefix('req-')}"
        answer = self._tried(question, headers)
        if answer.status == _VERSION_REFUSED:
            # The server was replaced by another one: find out anew, the next time.
            self._version = None
        return answer

    def _tried(self, question: Question, headers: Mapping[str, str]) -> Answer:
        tries = READ_TRIES if question.method == "GET" else 1
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            wait=self._wait,
            stop=tenacity.stop_after_attempt(tries) | tenacity.stop_after_delay(GIVES_UP_AFTER_S),
            reraise=True,
        )
        try:
            return retrying(self._sent, question, headers)
        except Unreachable as error:
            self._warnings.warn("Placement does not answer", at=self.shown, reason=error.message)
            raise

    def _sent(self, question: Question, headers: Mapping[str, str]) -> Answer:
        began = time.perf_counter()
        try:
            response = self._http.request(
                question.method,
                question.path,
                params=list(question.parameters) or None,
                json=question.body,
                headers={"Accept": "application/json", **self._secrets, **headers},
            )
        except httpx.TransportError as error:
            raise self._away(question, str(error) or type(error).__name__) from error
        answer = _answer(response)
        _log.debug(
            "placement asked",
            method=question.method,
            path=question.path,
            status=answer.status,
            code=answer.code,
            for_request=headers.get(_REQUEST_ID, ""),
            placement_request=answer.request_id,
            ms=round((time.perf_counter() - began) * 1000, 1),
        )
        return self._accepted(question, answer)

    def _accepted(self, question: Question, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            message = (
                f"Placement at {self.shown} refuses our credentials for {question.method} "
                f"{question.path} ({answer.status})"
            )
            self._warnings.warn("Placement refuses our credentials", at=self.shown)
            raise Rejected("placement_credentials", message, key="CONDUCTOR_PLACEMENT_URL")
        if answer.status >= 500:
            raise self._away(question, f"it answers {answer.status}", answer.request_id)
        return answer

    def _negotiated(self) -> Version:
        answer = self._tried(Question("GET", "/"), {})
        lowest, highest = self._known_to_server(answer)
        if highest < OLDEST or lowest > NEWEST:
            message = (
                f"Placement at {self.shown} speaks {_text(lowest)} to {_text(highest)}, and "
                f"{_text(OLDEST)} to {_text(NEWEST)} is needed"
            )
            raise Rejected("placement_too_old", message, have=_text(highest), need=_text(OLDEST))
        return min(highest, NEWEST)

    def _known_to_server(self, answer: Answer) -> tuple[Version, Version]:
        versions = answer.body.get("versions") if isinstance(answer.body, Mapping) else None
        for version in versions if isinstance(versions, list) else ():
            lowest = _VERSION.fullmatch(str(version.get("min_version")))
            highest = _VERSION.fullmatch(str(version.get("max_version")))
            if lowest and highest:
                return _version(lowest), _version(highest)
        message = f"{self.shown} answers ({answer.status}), but is no Placement server"
        raise Rejected("placement_url_invalid", message, key="CONDUCTOR_PLACEMENT_URL")

    def _away(self, question: Question, why: str, request_id: str = "") -> Unreachable:
        message = f"Placement at {self.shown}: {question.method} {question.path}: {why}"
        return Unreachable("placement_unreachable", message, placement_request=request_id)


def unexpected(question: Question, answer: Answer) -> Broken:
    """Return the error for an answer that the server should never give to this question."""
    message = f"Placement answers {answer.status} to {question.method} {question.path}"
    return Broken(
        "placement_answer_unexpected",
        message,
        status=answer.status,
        error=answer.code,
        placement_request=answer.request_id,
    )


def _address(url: str) -> tuple[httpx.URL, Mapping[str, str]]:
    """Return the address without credentials, and the headers that carry them."""
    try:
        given = httpx.URL(url)
    except httpx.InvalidURL:
        given = httpx.URL("")
    if given.scheme not in ("http", "https") or not given.host:
        message = "CONDUCTOR_PLACEMENT_URL should be http://[user:password@]host[:port][/path]"
        raise Rejected("placement_url_invalid", message, key="CONDUCTOR_PLACEMENT_URL")
    address = given.copy_with(username=None, password=None)
    if not given.username:
        return address, {}
    if not given.password:
        return address, {"X-Auth-Token": given.username}
    request = next(
        httpx.BasicAuth(given.username, given.password).auth_flow(httpx.Request("GET", address))
    )
    return address, {"Authorization": request.headers["Authorization"]}


def _answer(response: httpx.Response) -> Answer:
    try:
        body = response.json() if response.content else None
    except ValueError:
        body = None
    return Answer(response.status_code, _code(body), body, response.headers.get(_REQUEST_ID, ""))


def _code(body: Any) -> str:
    errors = body.get("errors") if isinstance(body, Mapping) else None
    first = errors[0] if isinstance(errors, list) and errors else {}
    return str(first.get("code", "")) if isinstance(first, Mapping) else ""


def _version(found: re.Match[str]) -> Version:
    return int(found[1]), int(found[2])


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
