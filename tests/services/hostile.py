"""Messages as a stranger would write them: raw bytes wherever AMQP leaves room for them.

Nothing here makes the broker itself dead-letter a message (no `expiration`, no forged `x-death`):
RabbitMQ 3.10 stops dead-lettering for the whole node over the latter.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import amqp
from amqp.exceptions import AMQPError

TASKS = (
    *("conductor.build_instances", "conductor.stop_instance", "conductor.explode"),
    *("reports.heartbeat", "reports.reply", "scheduler.select_hosts", "celery.group", ""),
)
# The flags of short strings, without `expiration` and `user_id`, which the broker checks.
_SHORT = (0x8000, 0x4000, 0x0400, 0x0200, 0x0080, 0x0020, 0x0008, 0x0004)
_ORDER = (0x8000, 0x4000, 0x2000, 0x1000, 0x0800, 0x0400, 0x0200, 0x0080, 0x0040, 0x0020, 8, 4)
_HEADERS = (
    *(b"task", b"id", b"parent_id", b"eta", b"expires", b"compression", b"origin"),
    *(b"kwargsrepr", b"retries", b"\xff"),
)
_USUAL = {0x8000: b"application/json", 0x4000: b"utf-8"}


class RawMessage(amqp.Message):
    """A message whose properties are these bytes."""

    def __init__(self, body: bytes, raw: bytes) -> None:
        super().__init__(body)
        self._raw = raw

    def _serialize_properties(self) -> bytes:
        return self._raw


@dataclass(frozen=True)
class Hostile:
    """One message: where to, its properties and its body."""

    exchange: str
    key: str
    properties: bytes
    body: bytes


def hostile(chance: Random, queues: Sequence[str]) -> Hostile:
    """Return one more message; most are nearly right, which is where checks are missed."""
    queue = chance.choice(queues)
    parts = {flag: _short(value) for flag, value in _USUAL.items()}
    parts[0x2000] = _table(chance, _headers(chance))
    for flag in chance.sample(_SHORT, chance.choice((0, 0, 1, 3))):
        parts[flag] = _short(_bytes(chance))
    if chance.random() < 0.2:
        parts[0x0040] = struct.pack(">Q", chance.choice((0, 2**40, 2**63, 2**64 - 1)))
    if chance.random() < 0.2:
        parts[0x0800] = bytes([chance.randrange(256)])
    flags = sum(parts)
    raw = struct.pack(">H", flags) + b"".join(parts[flag] for flag in _ORDER if flag in parts)
    return Hostile("", queue, raw, _body(chance))


def send(url: str, messages: list[Hostile]) -> int:
    """Publish each; return how many the broker has taken."""
    taken, channel = 0, None
    for message in messages:
        channel = channel or _channel(url)
        try:
            channel.basic_publish(
                RawMessage(message.body, message.properties),
                exchange=message.exchange,
                routing_key=message.key,
            )
        except (AMQPError, OSError):
            channel = None  # the broker itself refuses such properties
        else:
            taken += 1
    return taken


def _channel(url: str) -> Any:
    user, _, rest = url.removeprefix("amqp://").partition("@")
    host, _, vhost = rest.partition("/")
    name, _, password = user.partition(":")
    connection = amqp.Connection(
        host, name, password, virtual_host=vhost or "/", confirm_publish=True
    )
    connection.connect()
    return connection.channel()


def _short(text: bytes) -> bytes:
    return bytes([len(text[:255])]) + text[:255]


def _bytes(chance: Random) -> bytes:
    return chance.choice(
        (
            *(b"\xff\xfe", b"\xed\xa0\x80", b"a\0b", b"\x1b[2J", b"", b"x" * 255, b"%s%n"),
            chance.randbytes(chance.randrange(1, 40)),
        )
    )


def _headers(chance: Random) -> dict[bytes, bytes]:
    id_ = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    fields = {b"task": _text(chance.choice(TASKS).encode()), b"id": _text(id_.encode())}
    for name in chance.sample(_HEADERS, chance.choice((0, 1, 2))):
        fields[name] = _value(chance, 0)
    return fields


def _table(chance: Random, fields: dict[bytes, bytes]) -> bytes:
    inner = b"".join(_short(name) + value for name, value in fields.items())
    return struct.pack(">I", len(inner)) + inner


def _text(raw: bytes) -> bytes:
    return b"S" + struct.pack(">I", len(raw)) + raw


def _value(chance: Random, deep: int) -> bytes:
    kind = chance.randrange(9)
    if kind == 0 and deep < 60:
        inner = _value(chance, deep + 1) * chance.choice((1, 1, 2))
        return b"A" + struct.pack(">I", len(inner)) + inner
    if kind == 1 and deep < 60:
        return b"F" + _table(chance, {_bytes(chance): _value(chance, deep + 1)})
    return (
        _text(_bytes(chance)),
        b"l" + struct.pack(">q", chance.choice((300, -1, 2**62))),
        b"T" + struct.pack(">Q", chance.choice((0, 2**40, 2**63))),
        b"d" + struct.pack(">d", chance.choice((float("nan"), float("inf"), 1e308))),
        b"D" + struct.pack(">Bi", chance.randrange(256), -5),
        b"V",
        b"x" + struct.pack(">I", 2) + b"\xff\0",
        b"t\x01",
        b"b\x80",
    )[kind]


def _body(chance: Random) -> bytes:
    keywords: Any = {"context": {"project_id": "p"}, "instance": {"name": "one"}}
    kind = chance.randrange(12)
    if kind < 4:
        keywords = {**keywords, chance.choice(("a", "\ud800", "\0", "self")): _json(chance)}
        return json.dumps([[], keywords, {}]).encode()
    whole = json.dumps([[], keywords, {}]).encode()
    cut = chance.randrange(len(whole))
    return (
        whole[:cut] + _bytes(chance) + whole[cut + 1 :],
        chance.randbytes(200),
        b"[" * chance.choice((50, 500, 100_000)),
        b'[[], {"a": ' + b"[" * 300 + b"]" * 300 + b"}, {}]",
        zlib.compress(bytes(4_000_000)),
        b'[[], {"a": ' + b"9" * chance.choice((30, 5_000)) + b"}, {}]",
        b'[[], {"a": {"__type__": "datetime", "__value__": "x"}}, {}]',
        b"",
    )[kind - 4]


def _json(chance: Random) -> Any:
    return chance.choice(
        (
            *(float("nan"), float("-inf"), 2**63, 2**200, "\ud800", "a\0", {"\udfff": [1]}, None),
            *([[]] * 1_000, {"password": "canary"}, "\x1b]0;x\x07", {"__type__": "uuid"}),
        )
    )
