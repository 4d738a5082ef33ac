"""Ask a port, in its own protocol, whether the service that we need answers there.

An open port proves nothing: each probe goes as far as an accepted login.
"""

import socket
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Answers:
    """The service is there and let us in."""


@dataclass(frozen=True)
class Silent:
    """The service cannot be used, with the reason in words for a person."""

    reason: str


Verdict = Answers | Silent
Probe = Callable[[str], Verdict]


class _UnexpectedReplyError(Exception):
    """What came back is not what a server that lets us in would say."""


def rabbitmq(url: str) -> Verdict:
    """Log in over AMQP 0-9-1 up to the broker's tuning proposal, then hang up."""
    return _verdict(url, 5672, _log_in_to_rabbitmq)


def postgresql(url: str) -> Verdict:
    """Start a session and accept only a server that asks for no password, or for ours.

    A password cannot be checked without the SCRAM handshake, so when the URL carries one it is
    enough that the server asks for it.
    """
    return _verdict(url, 5432, _log_in_to_postgresql)


def redis(url: str) -> Verdict:
    """PING, after AUTH when the URL carries a password."""
    return _verdict(url, 6379, _log_in_to_redis)


def address(url: str, default_port: int) -> tuple[str, int]:
    """Return the host and port that a service URL names."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or default_port


def _verdict(
    url: str, default_port: int, log_in: Callable[[socket.socket, SplitResult], None]
) -> Verdict:
    host, port = address(url, default_port)
    try:
        with _connected(host, port) as connection:
            log_in(connection, urlsplit(url))
    except ConnectionRefusedError:
        return Silent(f"nothing listens on {host}:{port}")
    except ConnectionResetError:
        return Silent(f"{host}:{port} hangs up during the login")
    except _UnexpectedReplyError as error:
        return Silent(f"{host}:{port} {error}")
    except (OSError, struct.error) as error:
        return Silent(f"{host}:{port} does not answer ({error})")
    return Answers()


def _connected(host: str, port: int) -> AbstractContextManager[socket.socket]:
    connection = socket.create_connection((host, port), timeout=TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    chunks = b""
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise _UnexpectedReplyError("hangs up during the login")
        chunks += chunk
    return chunks


def _log_in_to_rabbitmq(connection: socket.socket, url: SplitResult) -> None:
    """Connection.Start is class 10 method 10, StartOk 11, Tune 30 (AMQP 0-9-1, section 1.4)."""
    connection.sendall(b"AMQP\x00\x00\x09\x01")
    if _amqp_method(connection) != (10, 10):
        raise _UnexpectedReplyError("is no AMQP 0-9-1 broker")
    user = unquote(url.username or "guest").encode()
    password = unquote(url.password or "guest").encode()
    response = b"\x00" + user + b"\x00" + password
    arguments = (
        struct.pack(">HHI", 10, 11, 0)
        + b"\x05PLAIN"
        + struct.pack(">I", len(response))
        + response
        + b"\x05en_US"
    )
    connection.sendall(struct.pack(">BHI", 1, 0, len(arguments)) + arguments + b"\xce")
    if _amqp_method(connection) != (10, 30):
        raise _UnexpectedReplyError(f"refuses the RabbitMQ user {user.decode()}")


def _amqp_method(connection: socket.socket) -> tuple[int, int]:
    kind, _channel, size = struct.unpack(">BHI", _exactly(connection, 7))
    if kind != 1:
        raise _UnexpectedReplyError("is no AMQP 0-9-1 broker")
    class_id, method_id = struct.unpack_from(">HH", _exactly(connection, size + 1))
    return class_id, method_id


def _log_in_to_postgresql(connection: socket.socket, url: SplitResult) -> None:
    """Message R 0 lets us in, any other R wants a proof, Z ends a login (protocol 3.0)."""
    user = unquote(url.username or "postgres").encode()
    database = (url.path.lstrip("/") or "postgres").encode()
    body = struct.pack(">I", 3 << 16)
    body += b"user\x00" + user + b"\x00database\x00" + database + b"\x00\x00"
    connection.sendall(struct.pack(">I", len(body) + 4) + body)
    kind, content = _postgresql_message(connection)
    if kind not in (b"R", b"E"):
        raise _UnexpectedReplyError("is no PostgreSQL server")
    if kind == b"R" and content[:4] != b"\x00\x00\x00\x00":
        if url.password:
            return
        raise _UnexpectedReplyError(f"asks the PostgreSQL user {user.decode()} for a password")
    while kind not in (b"Z", b"E"):
        kind, content = _postgresql_message(connection)
    if kind == b"E":
        raise _UnexpectedReplyError(f"refuses the PostgreSQL user {user.decode()}")


def _postgresql_message(connection: socket.socket) -> tuple[bytes, bytes]:
    kind, size = struct.unpack(">cI", _exactly(connection, 5))
    if not kind.isalpha() or not 4 <= size <= 65536:
        raise _UnexpectedReplyError("is no PostgreSQL server")
    return kind, _exactly(connection, size - 4)


def _log_in_to_redis(connection: socket.socket, url: SplitResult) -> None:
    if url.password:
        credentials = f"{unquote(url.username or 'default')} {unquote(url.password)}"
        connection.sendall(f"AUTH {credentials}\r\n".encode())
        if _exactly(connection, 5) != b"+OK\r\n":
            raise _UnexpectedReplyError("refuses the Redis password")
    connection.sendall(b"PING\r\n")
    if _exactly(connection, 7) != b"+PONG\r\n":
        raise _UnexpectedReplyError("asks for a password or is no Redis server")
