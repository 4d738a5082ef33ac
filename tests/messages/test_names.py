"""What can name a host or anything else, wherever it comes from."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.ids import compute_queue, is_host_name, is_name
from models.messages.base import parse
from models.messages.internal import Heartbeat, HostRegistration, Progress, Reply
from models.messages.requests import parse_request

BAD_HOSTS = [
    *(
        "",
        " ",
        "a b",
        "../../etc/passwd",
        "%s%n",
        "x" * 300,
        "x" * 201,
        "a/b",
        ".",
        "..",
        "-a",
        "a-",
    ),
    *("a\n", "a\0", "\ud800", "höst", "\x1b[31m", "a\u202eb", ("a." * 100)[:-1] + "x"),
]
BAD_NAMES = ["", " ", " a", "a ", "a\nb", "a\0b", "\ud800", "\x1b[2J", "a\u202eb", "x" * 256]
TOKEN = {"operation_id": "o", "step": "s", "attempt": 1, "sequence": 1}


@pytest.mark.parametrize("name", BAD_HOSTS)
def test_what_names_no_host_is_refused_from_hosts_and_from_senders(name: str) -> None:
    assert not is_host_name(name)
    beat = {"host": name, "boot_id": "b"}
    host_registration = {
        **beat,
        "taken_at": 1.0,
        "hypervisor": "simulated",
        "hardware": {},
        "disk_gb": 1,
    }
    reply = {"token": TOKEN, "sender": name, "outcome": "done"}
    for kind, body in (
        (Heartbeat, beat),
        (HostRegistration, host_registration),
        (Reply, reply),
        (Progress, reply),
    ):
        with pytest.raises(Rejected):
            parse(kind, body)
    context = {"context": {"project_id": "p"}}
    to = {"instance_id": "00000000-0000-4000-8000-000000000000", "host": name}
    entry = {"entry": "aggregate", "body": {"name": "a", "hosts": [name]}}
    for task, body in (("migrate_instance", to), ("define_entry", entry)):
        with pytest.raises(Rejected):
            parse_request(f"conductor.{task}", {**context, **body})


@pytest.mark.parametrize("name", ["h", "host-1", "rack7_u3", "node.example", "7", "A", "x" * 200])
def test_names_that_hosts_have_are_taken(name: str) -> None:
    assert is_host_name(name)
    assert len(compute_queue(name)) <= 255


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("entry", ["flavor", "image", "aggregate", "zone", "server_group", "quota"])
def test_what_names_nothing_is_refused_for_every_kind_of_entry(entry: str, name: str) -> None:
    assert not is_name(name)
    more: dict[str, object] = {
        "flavor": {"vcpus": 1, "memory_mb": 1},
        "server_group": {"policy": "affinity"},
    }.get(entry, {})
    body = {"id" if entry == "image" else "name": name, **more}
    with pytest.raises(Rejected) as caught:
        parse_request(
            "conductor.define_entry", {"context": {"project_id": "p"}, "entry": entry, "body": body}
        )
    words = ("printable", "surrogate", "NUL")
    assert any(word in caught.value.message for word in words)


@pytest.mark.parametrize("name", ["web 1", "größe", "m1.small", "東京", "a" * 255])
def test_names_that_people_give_are_taken(name: str) -> None:
    assert is_name(name)
