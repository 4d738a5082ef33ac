"""Frames and properties that are legal to the broker and odd to a client are read all the same."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from amqp.serialization import GenericContent
from hypothesis import given
from hypothesis import strategies as st

from tasks.wire_decoding import (
    BODY_KEPT,
    COMPRESSED_BY,
    MALFORMED,
    MAX_BODY_BYTES,
    FrameReader,
    read_properties,
)

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


class Connection:
    bytes_recv = 0


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def table(*fields: bytes) -> bytes:
    inner = b"".join(fields)
    return struct.pack(">I", len(inner)) + inner


def field(name: bytes, value: bytes) -> bytes:
    return short(name) + value


def headers(*fields: bytes) -> dict[str, Any]:
    return read_properties(struct.pack(">H", 0x2000) + table(*fields))


def frames(key: bytes, properties: bytes, *parts: bytes, size: int | None = None) -> list[Any]:
    deliver = struct.pack(">HH", 60, 60) + short(b"tag") + struct.pack(">QB", 1, 0)
    total = sum(map(len, parts)) if size is None else size
    header = struct.pack(">HHQ", 60, 0, total) + properties
    return [
        (METHOD, 1, deliver + short(b"conductor") + short(key)),
        (HEADER, 1, header),
        *((BODY, 1, part) for part in parts),
    ]


def delivered(*sent: Any) -> list[tuple[Any, ...]]:
    got: list[tuple[Any, ...]] = []
    read = FrameReader(Connection(), lambda *given: got.append(given))
    for frame in sent:
        read(frame)
    return got


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        (0x8000, "content_type"),
        (0x4000, "content_encoding"),
        (0x0400, "correlation_id"),
        (0x0200, "reply_to"),
        (0x0100, "expiration"),
        (0x0080, "message_id"),
        (0x0020, "type"),
        (0x0010, "user_id"),
        (0x0008, "app_id"),
        (0x0004, "cluster_id"),
    ],
)
@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_property_that_is_not_utf8_marks_the_message_and_stays_readable(
    flag: int, name: str, raw: bytes
) -> None:
    properties = read_properties(struct.pack(">H", flag) + short(raw))
    shown = "".join(f"\\x{byte:02x}" for byte in raw)
    assert properties[name] == shown
    assert properties[MALFORMED] == f"its property {name} is not UTF-8: {shown}"


def test_good_properties_are_read_as_the_client_library_reads_them() -> None:
    body = {"n": -1, "s": "ä", "t": True, "l": [1, {"k": None}], "d": 1.5}
    sent = GenericContent(content_type="application/json", application_headers=body, priority=3)
    sent.PROPERTIES = [("content_type", "s"), ("content_encoding", "s")]
    sent.PROPERTIES += [("application_headers", "F"), ("delivery_mode", "o"), ("priority", "o")]
    read = read_properties(sent._serialize_properties())
    assert read == {"content_type": "application/json", "application_headers": body, "priority": 3}


def test_a_routing_key_that_is_not_utf8_is_delivered_as_text() -> None:
    [(_, method, arguments, message)] = delivered(*frames(b"\xff", b"\0\0", b"{}"))
    assert (method, message.body) == ((60, 60), b"{}")
    assert arguments.endswith(short(b"\\xff"))


def test_a_long_routing_key_that_is_not_utf8_still_fits() -> None:
    [(_, _, arguments, _)] = delivered(*frames(b"\xff" * 255, b"\0\0", b"{}"))
    assert arguments[-256] == 255


def test_headers_nested_without_end_mark_the_message_and_what_follows_is_read() -> None:
    deep = b"V"
    for _ in range(2_000):
        deep = b"A" + struct.pack(">I", len(deep)) + deep
    found = headers(field(b"deep", deep), field(b"id", b"S" + struct.pack(">I", 1) + b"x"))
    assert found[MALFORMED] == "its headers are nested deeper than 16 levels"
    assert found["application_headers"]["id"] == "x"


def test_a_timestamp_that_no_calendar_has_is_kept_as_words() -> None:
    found = headers(field(b"at", b"T" + struct.pack(">Q", 2**63)))
    assert found == {"application_headers": {"at": f"{2**63} s since 1970"}}


def test_header_names_and_values_that_are_not_utf8_do_no_harm() -> None:
    found = headers(field(b"\xff", b"S" + struct.pack(">I", 1) + b"\xfe"))
    assert found == {"application_headers": {"\\xff": b"\xfe"}}


def test_a_compressed_body_is_not_undone() -> None:
    found = headers(field(b"compression", b"S" + struct.pack(">I", 4) + b"gzip"))
    assert found["application_headers"] == {COMPRESSED_BY: "gzip"}
    assert found[MALFORMED] == "the body is compressed ('gzip'): none is undone"


def test_of_a_body_that_is_too_large_only_the_beginning_is_kept() -> None:
    part = b"x" * 100_000
    count = MAX_BODY_BYTES // len(part) + 1
    [(*_, message)] = delivered(*frames(b"k", b"\0\0", *[part] * count))
    assert message.body == b"x" * BODY_KEPT
    assert message.properties[MALFORMED] == (
        f"the body has {count * len(part)} bytes: at most {MAX_BODY_BYTES} are read"
    )


def test_a_message_that_follows_a_large_one_is_whole() -> None:
    part = b"x" * (MAX_BODY_BYTES + 1)
    got = delivered(*frames(b"k", b"\0\0", part), *frames(b"k", b"\0\0", b"a", b"b"))
    assert got[1][3].body == b"ab"
    assert MALFORMED not in got[1][3].properties


def test_a_message_without_a_body_is_delivered() -> None:
    assert len(delivered(*frames(b"k", b"\0\0"), (HEARTBEAT, 0, b""))) == 1


@given(st.binary(max_size=200), st.integers(0, 0xFFFF))
def test_whatever_bytes_properties_are_they_are_read(raw: bytes, flags: int) -> None:
    properties = read_properties(struct.pack(">H", flags) + raw)
    for value in properties.values():
        if isinstance(value, str):
            value.encode()


@given(st.binary(max_size=300))
def test_whatever_bytes_headers_are_they_are_read(raw: bytes) -> None:
    read_properties(struct.pack(">HI", 0x2000, len(raw)) + raw)
