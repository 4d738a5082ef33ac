"""How a Placement server is spoken to: versions, credentials, retries, request ids, warnings."""

import base64
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import structlog
from tenacity import wait_none

from conductor.placement.http.http_client import READ_TRIES, PlacementClient, Question
from conductor.placement.http.http_placement import HttpPlacement
from conductor.placement.providers import Consumer
from conductor.placement.request_groups import CandidateRequest, RequestGroup, TraitRule
from models.errors import Broken, Rejected, Unreachable
from models.throttled_log import EVERY_S, ThrottledLog

URL = "http://placement.example:8778/placement"
CONSUMER = "11111111-1111-4111-8111-111111111111"

Answering = Callable[[httpx.Request], httpx.Response]


class Server:
    """A server that answers as told and keeps what it was asked."""

    def __init__(self, answer: Answering, newest: str = "1.39", oldest: str = "1.0") -> None:
        self._answer = answer
        self._versions = {"versions": [{"min_version": oldest, "max_version": newest}]}
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if request.url.path.rstrip("/") in ("", "/placement"):
            return httpx.Response(200, json=self._versions)
        return self._answer(request)


class Heard:
    """Warnings, and a clock to space them."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.now = 0.0

    def warn(self, kind: str, *, kept_back: int, **_fields: Any) -> None:
        self.said.append((kind, kept_back))


def client(server: Answering, url: str = URL, heard: Heard | None = None) -> PlacementClient:
    ear = heard or Heard()
    warnings = ThrottledLog(ear.warn, lambda: ear.now)
    return PlacementClient(
        url, transport=httpx.MockTransport(server), wait=wait_none(), warnings=warnings
    )


def fine(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"allocations": {}})


def failing(status: int, code: str = "placement.undefined_code") -> Answering:
    body = {"errors": [{"status": status, "code": code, "title": "no"}]}
    return lambda _request: httpx.Response(status, json=body)


def cut(_request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


@pytest.mark.parametrize(
    ("newest", "spoken"), [("1.38", "1.38"), ("1.39", "1.39"), ("1.40", "1.39"), ("2.5", "1.39")]
)
def test_the_highest_version_that_both_know_is_spoken(newest: str, spoken: str) -> None:
    server = Server(fine, newest)
    HttpPlacement(client(server)).consumer(CONSUMER)
    assert server.asked[-1].headers["OpenStack-API-Version"] == f"placement {spoken}"


def test_versions_are_asked_for_once() -> None:
    server = Server(fine)
    placement = HttpPlacement(client(server))
    for _ in range(3):
        placement.consumer(CONSUMER)
    assert len(server.asked) == 4


@pytest.mark.parametrize(("oldest", "newest"), [("1.0", "1.37"), ("1.40", "1.50"), ("2.0", "2.1")])
def test_a_server_of_no_version_in_common_is_refused_naming_both(oldest: str, newest: str) -> None:
    with pytest.raises(Rejected) as refused:
        HttpPlacement(client(Server(fine, newest, oldest))).check_credentials()
    assert refused.value.code == "placement_too_old"
    assert newest in refused.value.message
    assert "1.38" in refused.value.message


def test_any_of_several_traits_needs_a_server_that_knows_it() -> None:
    rule = TraitRule(any_of=(frozenset({"HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"}),))
    request = CandidateRequest((RequestGroup(resources={"VCPU": 1}, traits=rule),))
    with pytest.raises(Rejected) as refused:
        HttpPlacement(client(Server(fine, "1.38"))).candidates(request, 10)
    assert refused.value.code == "placement_too_old"
    assert "1.39" in refused.value.message


@pytest.mark.parametrize(
    "response",
    [httpx.Response(200, text="<html>It works!</html>"), httpx.Response(404, json={"error": "?"})],
)
def test_what_is_no_placement_server_is_refused(response: httpx.Response) -> None:
    with pytest.raises(Rejected) as refused:
        HttpPlacement(client(lambda _: response)).check_credentials()
    assert refused.value.code == "placement_url_invalid"


@pytest.mark.parametrize("url", ["", "placement", "ftp://host", "http://", "amqp://u:hunter2@h"])
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(Rejected) as refused:
        PlacementClient(url)
    assert refused.value.code == "placement_url_invalid"
    assert "hunter2" not in refused.value.message


def test_user_and_password_go_as_basic_credentials_and_are_never_shown() -> None:
    server = Server(failing(503))
    asking = client(server, "http://nova:hunter2@placement.example/placement")
    with pytest.raises(Unreachable) as away, structlog.testing.capture_logs() as logged:
        HttpPlacement(asking).consumer(CONSUMER)
    sent = server.asked[-1]
    assert sent.headers["Authorization"] == f"Basic {base64.b64encode(b'nova:hunter2').decode()}"
    assert sent.url.userinfo == b""
    assert "hunter2" not in f"{away.value} {asking.shown} {logged}"
    assert "nova" not in f"{away.value} {asking.shown} {logged}"


def test_a_user_alone_goes_as_a_token() -> None:
    server = Server(fine)
    HttpPlacement(client(server, "http://admin@placement.example")).consumer(CONSUMER)
    assert server.asked[-1].headers["X-Auth-Token"] == "admin"
    assert "Authorization" not in server.asked[-1].headers


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_the_callers_fault_and_not_tried_again(status: int) -> None:
    server = Server(failing(status))
    with pytest.raises(Rejected) as refused:
        HttpPlacement(client(server)).check_credentials()
    assert refused.value.code == "placement_credentials"
    assert len(server.asked) == 2


@pytest.mark.parametrize("answer", [failing(500), failing(503), cut])
def test_a_read_is_tried_a_few_times_and_never_means_nothing(answer: Answering) -> None:
    server = Server(answer)
    with pytest.raises(Unreachable) as away:
        HttpPlacement(client(server)).consumer(CONSUMER)
    assert away.value.code == "placement_unreachable"
    assert len(server.asked) == 1 + READ_TRIES


@pytest.mark.parametrize("answer", [failing(404), failing(400), lambda _: httpx.Response(200)])
def test_an_odd_answer_to_a_read_never_means_nothing_either(answer: Answering) -> None:
    with pytest.raises(Broken) as odd:
        HttpPlacement(client(Server(answer))).consumer(CONSUMER)
    assert odd.value.code == "placement_answer_unexpected"


def test_a_read_goes_on_once_the_server_is_back() -> None:
    answers = [
        httpx.Response(503),
        httpx.Response(503),
        httpx.Response(200, json={"allocations": {}}),
    ]
    server = Server(lambda _: answers.pop(0))
    assert HttpPlacement(client(server)).consumer(CONSUMER) == Consumer(CONSUMER)


@pytest.mark.parametrize("answer", [failing(500), cut])
def test_a_write_whose_outcome_is_unknown_is_not_tried_again(answer: Answering) -> None:
    server = Server(answer)
    with pytest.raises(Unreachable):
        HttpPlacement(client(server)).delete_provider(CONSUMER)
    assert len(server.asked) == 2


def test_the_id_of_a_request_is_forwarded_and_logged_with_the_servers() -> None:
    theirs = {"X-Openstack-Request-Id": "req-theirs"}
    server = Server(lambda _: httpx.Response(200, json={"allocations": {}}, headers=theirs))
    ours = "22222222-2222-4222-8222-222222222222"
    with structlog.testing.capture_logs() as logged:
        HttpPlacement(client(server)).on_behalf_of(ours).consumer(CONSUMER)
    assert server.asked[-1].headers["X-Openstack-Request-Id"] == f"req-{ours}"
    assert logged[-1]["for_request"] == f"req-{ours}"
    assert logged[-1]["placement_request"] == "req-theirs"


def test_a_server_that_was_replaced_by_another_version_is_asked_anew() -> None:
    server = Server(failing(406))
    asking = client(server)
    asking.send(Question("GET", "/usages"))
    asking.send(Question("GET", "/usages"))
    assert [request.url.path for request in server.asked].count("/placement/") == 2


def test_warnings_of_one_kind_come_once_a_minute_with_the_count_of_those_kept_back() -> None:
    heard = Heard()
    placement = HttpPlacement(client(Server(failing(503)), heard=heard))
    for now in (0.0, 1.0, EVERY_S - 0.1, EVERY_S, EVERY_S + 1):
        heard.now = now
        with pytest.raises(Unreachable):
            placement.check_credentials()
    assert heard.said == [("Placement does not answer", 0), ("Placement does not answer", 2)]


def test_warnings_of_another_kind_are_not_kept_back() -> None:
    heard = Heard()
    warnings = ThrottledLog(heard.warn, lambda: heard.now)
    warnings.warn("one")
    warnings.warn("other")
    assert heard.said == [("one", 0), ("other", 0)]
