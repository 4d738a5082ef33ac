"""Frames from the broker, read so that no bytes end the process: what is odd is marked, not raised.

The client library decodes a message's properties while it reads frames, before any check of ours:
one byte that is not UTF-8, a table nested without end or a far timestamp would end whoever
receives it, again after every restart. Here every message is delivered; one that cannot be taken
carries the reason under `MALFORMED`, and `envelope` refuses it like any other. Nothing is
decompressed, and of a body that is too large only the beginning is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import amqp
from amqp import spec
from amqp.exceptions import UnexpectedFrame

MALFORMED: Final = "malformed"
"""Key among a message's properties: why it cannot be taken, in one line."""

COMPRESSED_BY: Final = "compressed_by"
"""Where the header `compression` is then, so that nothing follows it."""

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
BODY_KEPT: Final = 256 * 1024
"""What is kept of a body that is larger than `MAX_BODY_BYTES`."""

_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_DEEPEST = 16
_BYTES_SHOWN = 80

# What follows a method's two numbers: short strings, and bytes that are left as they are.
_WITH_CONTENT: Final[Mapping[tuple[int, int], tuple[int | None, ...]]] = {
    spec.Basic.Deliver: (None, 9, None, None),
    spec.Basic.GetOk: (9, None, None, 4),
    spec.Basic.Return: (2, None, None, None),
}
_PROPERTIES: Final = (
    *("content_type", "content_encoding", "application_headers", "delivery_mode", "priority"),
    *("correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type", "user_id"),
    *("app_id", "cluster_id"),
)
_OCTETS: Final = ("delivery_mode", "priority")
# As RabbitMQ writes tables, which is not everywhere as the standard has it.
_NUMBERS: Final = dict(
    zip(
        b"bBsUuIiLlfdt",
        (">b", ">B", ">h", ">h", ">H", ">i", ">I", ">q", ">q", ">f", ">d", ">?"),
        strict=True,
    )
)


class _OddTableError(Exception):
    """A table that cannot be read on from here."""


class FrameReader:
    """Puts frames of one connection together to methods and messages, for py-amqp's connection."""

    def __init__(self, connection: Any, dispatch: Callable[..., None]) -> None:
        """Give what is whole to `dispatch(channel, method, arguments, message)`."""
        self._connection = connection
        self._dispatch = dispatch
        self._partial: dict[int, WireMessage] = {}

    def __call__(self, frame: tuple[int, int, bytes]) -> bool:
        """Take one frame; say whether something was whole."""
        kind, channel, payload = frame
        self._connection.bytes_recv += 1
        if kind == _HEARTBEAT:
            return False
        if kind == _METHOD:
            return self._take_method(channel, payload)
        message = self._partial.get(channel)
        if message is None or kind not in (_HEADER, _BODY):
            raise UnexpectedFrame(f"a frame of type {kind} on channel {channel} without a method")
        if kind == _HEADER:
            message.inbound_header(payload)
        else:
            message.inbound_body(payload)
        if not message.ready:
            return False
        del self._partial[channel]
        self._dispatch(channel, message.frame_method, message.frame_args, message)
        return True

    def _take_method(self, channel: int, payload: bytes) -> bool:
        method = struct.unpack_from(">HH", payload)
        layout = _WITH_CONTENT.get(method)
        if layout is None:
            self._dispatch(channel, method, payload, None)
            return True
        arguments = _readable(payload, layout)
        self._partial[channel] = WireMessage(frame_method=method, frame_args=arguments)
        return False


class WireMessage(amqp.Message):
    """A message whose properties are read whatever they hold, and whose body is bounded."""

    inbound_header: Callable[[bytes], int]

    def _load_properties(self, class_id: int, buf: bytes, offset: int) -> int:
        del class_id  # only messages of the class `basic` exist
        self.properties = read_properties(buf[offset:])
        if self.body_size > MAX_BODY_BYTES:
            found = f"the body has {self.body_size} bytes: at most {MAX_BODY_BYTES} are read"
            self.properties.setdefault(MALFORMED, found)
        return len(buf)

    def inbound_body(self, buf: bytes) -> None:
        """Take a part of the body; of one that is too large, only the beginning."""
        large = self.body_size > MAX_BODY_BYTES
        missed = min(len(buf), max(0, self.body_received + len(buf) - BODY_KEPT)) if large else 0
        self.body_received += missed
        super().inbound_body(buf[: len(buf) - missed])  # type: ignore[misc]  # not in the stubs


def read_properties(buf: bytes) -> dict[str, Any]:
    """Return the properties of a message, from their flags on, with `MALFORMED` where they are."""
    properties: dict[str, Any] = {}
    try:
        (flags,) = struct.unpack_from(">H", buf)
        reader = _Reader(buf, 2)
        for place, name in enumerate(_PROPERTIES):
            if flags & (0x8000 >> place):
                properties[name] = _read_property(reader, name, properties)
    except (struct.error, IndexError):
        properties.setdefault(MALFORMED, "its properties end too early")
    headers = properties.get("application_headers")
    if headers and "compression" in headers:
        headers[COMPRESSED_BY] = found = headers.pop("compression")
        properties.setdefault(MALFORMED, f"the body is compressed ({found!r:.60}): none is undone")
    return properties


def _read_property(reader: _Reader, name: str, properties: dict[str, Any]) -> Any:
    if name == "application_headers":
        table = reader.table(0)
        if reader.odd is not None:
            properties.setdefault(MALFORMED, f"its headers {reader.odd}")
        return table
    if name == "timestamp":
        return reader.number(">Q")
    if name in _OCTETS:
        return reader.number(">B")
    raw = reader.short()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        shown = readable(raw)
        properties.setdefault(MALFORMED, f"its property {name} is not UTF-8: {shown}")
        return shown


def readable(raw: bytes) -> str:
    r"""Return bytes as text: UTF-8 where they are, else each other byte as `\xff`."""
    return raw.decode("utf-8", "backslashreplace")


class _Reader:
    """Reads the values of one table, and notes in `odd` the first that cannot be read."""

    def __init__(self, buf: bytes, at: int) -> None:
        self._buf = buf
        self._at = at
        self.odd: str | None = None

    def number(self, kind: str) -> Any:
        (found,) = struct.unpack_from(kind, self._buf, self._at)
        self._at += struct.calcsize(kind)
        return found

    def short(self) -> bytes:
        return self._bytes(self.number(">B"))

    def table(self, deep: int) -> dict[str, Any]:
        end = self._end()
        found: dict[str, Any] = {}
        try:
            while self._at < end:
                name = readable(self.short())
                found[name] = self._value(deep)
        except _OddTableError as error:
            self.odd = self.odd or str(error)
        self._at = end
        return found

    def _list(self, deep: int) -> list[Any]:
        end = self._end()
        found: list[Any] = []
        try:
            while self._at < end:
                found.append(self._value(deep))
        except _OddTableError as error:
            self.odd = self.odd or str(error)
        self._at = end
        return found

    def _value(self, deep: int) -> Any:
        outgoing = self.number(">B")
        if outgoing in _NUMBERS:
            return self.number(_NUMBERS[outgoing])
        match chr(outgoing):
            case "S":
                return _text(self._bytes(self.number(">I")))
            case "x":
                return self._bytes(self.number(">I"))
            case "F" | "A" if deep >= _DEEPEST:
                raise _OddTableError(f"are nested deeper than {_DEEPEST} levels")
            case "F":
                return self.table(deep + 1)
            case "A":
                return self._list(deep + 1)
            case "T":
                return _moment(self.number(">Q"))
            case "D":
                scale, digits = self.number(">B"), self.number(">i")
                return Decimal(digits).scaleb(-scale)
            case "V":
                return None
        raise _OddTableError(f"hold a value of an unknown type: {bytes([outgoing])!r}")

    def _end(self) -> int:
        length = self.number(">I")
        if self._at + length > len(self._buf):
            raise IndexError(length)
        return self._at + int(length)

    def _bytes(self, length: int) -> bytes:
        found = self._buf[self._at : self._at + length]
        if len(found) < length:
            raise IndexError(length)
        self._at += length
        return bytes(found)


def _text(raw: bytes) -> str | bytes:
    """Return a header's text; what is none stays bytes, which senders may well want."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _moment(seconds: int) -> datetime | str:
    """Return a timestamp as py-amqp does, and one that no calendar has as words."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s since 1970"


def _readable(payload: bytes, layout: tuple[int | None, ...]) -> bytes:
    """Return a method's arguments with every short string made UTF-8: a routing key may be none."""
    parts, at = [payload[:4]], 4
    for length in layout:
        if length is not None:
            parts.append(payload[at : at + length])
            at += length
            continue
        end = at + 1 + payload[at]
        text = readable(payload[at + 1 : end]).encode()[:255].decode("utf-8", "ignore").encode()
        parts += bytes([len(text)]), text
        at = end
    return b"".join((*parts, payload[at:]))
