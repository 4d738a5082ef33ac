"""Any message of the dead letters becomes a record that every database takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu import Message

from tasks.dead_letter_reading import BODY_KEPT, read_dead_letter
from tasks.message_validation import trimmed_headers

ID = "00000000-0000-4000-8000-000000000000"
NOW = 1_000.0


def message(body: bytes | str, headers: dict[str, Any], **more: Any) -> Message:
    raw: Any = body
    return Message(
        body=raw, headers=headers, content_type="application/json", content_encoding="utf-8", **more
    )


def died(queue: str, reason: str = "rejected") -> dict[str, Any]:
    death = {"queue": queue, "reason": reason, "count": 1, "time": datetime(2026, 1, 1)}  # noqa: DTZ001  # as py-amqp reads it
    return {"x-death": [death], "x-first-death-queue": queue}


def task(body: dict[str, Any]) -> str:
    return json.dumps([[], body, {}])


def test_the_same_message_has_the_same_id_and_another_has_another() -> None:
    headers = {"task": "conductor.delete_instance", "id": ID, **died("conductor")}
    first = read_dead_letter(message(task({"a": 1}), headers), NOW)
    again = read_dead_letter(message(task({"a": 1}), headers), NOW + 5)
    other = read_dead_letter(message(task({"a": 2}), headers), NOW)
    assert first.id == again.id != other.id


def test_the_broker_s_own_headers_are_left_out() -> None:
    headers = {"task": "conductor.delete_instance", "id": ID, **died("conductor")}
    dead_letter = read_dead_letter(message(task({}), headers), NOW)
    assert dead_letter.headers == {"task": "conductor.delete_instance", "id": ID}
    assert (dead_letter.queue, dead_letter.task) == ("conductor", "conductor.delete_instance")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("delivery_limit", "given up: every worker that took it died or gave it back"),
        ("expired", "the broker dropped it: expired"),
        ("rejected", "whoever reads conductor rejected it without a word"),
    ],
)
def test_the_reason_is_in_words(reason: str, words: str) -> None:
    headers = {"task": "conductor.delete_instance", "id": ID, **died("conductor", reason)}
    assert read_dead_letter(message(task({}), headers), NOW).reason == words


def test_a_huge_body_is_cut() -> None:
    dead_letter = read_dead_letter(message("x" * (2 * BODY_KEPT), died("conductor")), NOW)
    assert len(dead_letter.body) == BODY_KEPT


@settings(max_examples=100)  # pure, but thousands of nested headers take minutes to draw
@given(
    body=st.binary(),
    headers=st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    ),
    queue=st.sampled_from(["conductor", "reports", "scheduler", "compute_h1", ""]),
)
def test_whatever_it_holds_it_can_be_stored(
    body: bytes, headers: dict[str, Any], queue: str
) -> None:
    dead_letter = read_dead_letter(message(body, {**died(queue), **headers}), NOW)
    assert dead_letter.reason
    kept = [
        dead_letter.queue,
        dead_letter.task,
        dead_letter.reason,
        dead_letter.body,
        dead_letter.headers,
    ]
    for text in texts(kept):
        assert "\x00" not in text
        text.encode()
    json.dumps(kept)


def texts(value: Any) -> Iterator[str]:
    """Return every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from texts(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_only_names_of_arguments_are_shown_of_a_request() -> None:
    sent = {"task": "conductor.build_instances", "id": ID, "kwargsrepr": "{'password': 'x'}"}
    headers = trimmed_headers({**sent, "eta": "2001-01-01", "shadow": "y"}, {"b": 1, "a": "secret"})
    assert headers["kwargsrepr"] == "{a, b}"
    assert "eta" not in headers
    assert "shadow" not in headers


def test_our_own_messages_say_themselves_what_is_shown() -> None:
    sent = {"task": "compute.spawn", "id": ID, "kwargsrepr": "spawn i on h1"}
    assert trimmed_headers(sent, {"token": {}})["kwargsrepr"] == "spawn i on h1"


@pytest.mark.parametrize(
    "body",
    [
        task({"instance": {"name": "web", "admin_password": "canary-77"}}),
        json.dumps({"admin_password": "canary-77"}),
        '{"instance": {"admin_password": "canary-77", "na',
        '"password=canary-77"',
    ],
)
def test_secrets_are_masked_in_whatever_arrives(body: str) -> None:
    shown = {"kwargsrepr": "{'user_data': 'canary-77'}", "authorization_token": "canary-77"}
    headers = {"task": "conductor.build_instances", "id": ID, **shown, **died("conductor")}
    dead_letter = read_dead_letter(message(body, headers), NOW)
    assert "canary-77" not in json.dumps(
        [dead_letter.body, dead_letter.headers, dead_letter.reason]
    )
    assert "***" in dead_letter.body


def test_json_without_secrets_is_kept_to_the_letter() -> None:
    body = '{"a":  1}'
    assert read_dead_letter(message(body, died("conductor")), NOW).body == body
