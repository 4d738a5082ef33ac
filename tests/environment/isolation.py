"""Give a test its own corner of a shared server, and take it back.

A RabbitMQ vhost, a PostgreSQL database, a Redis database number: so two runs, or a run and a
developer's own data, never meet on one server.
"""

import os
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

BROKER_CONTROL_TIMEOUT_S = 60
REDIS_CLAIM_S = 3 * 3600
REDIS_DATABASES = range(1, 16)


class ServiceMissingError(Exception):
    """A service that a test needs cannot be used; the text is one line for a person."""


@contextmanager
def rabbitmq_vhost(url: str, control: str) -> Iterator[str]:
    """Yield the URL of a new vhost on the broker at `url`, deleted afterwards.

    AMQP cannot create vhosts and the management plugin is not everywhere, so `control` is the
    command line that reaches the broker's `rabbitmqctl`.
    """
    name = _unique_name()
    user = urlsplit(url).username or "guest"
    _broker_control(control, "add_vhost", name)
    try:
        _broker_control(control, "set_permissions", "-p", name, user, ".*", ".*", ".*")
        yield _with_path(url, name)
    finally:
        _broker_control(control, "delete_vhost", name)


@contextmanager
def postgresql_database(url: str) -> Iterator[str]:
    """Yield the SQLAlchemy URL of a new, empty database on the server at `url`, then drop it."""
    name = _unique_name()
    identifier = sql.Identifier(name)
    _administer(url, sql.SQL("CREATE DATABASE {}").format(identifier))
    try:
        yield _with_path(url, name)
    finally:
        _administer(url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


@contextmanager
def redis_database(url: str) -> Iterator[str]:
    """Yield the URL of an empty Redis database number that no other run uses, then empty it.

    The claim is a key in database 0 that expires, so that a killed run gives its number back.
    """
    try:
        with redis.Redis.from_url(_with_path(url, "0"), socket_timeout=5) as registry:
            number = _claim_redis_number(registry, url)
            mine = _with_path(url, str(number))
            yield mine
            with redis.Redis.from_url(mine) as used:
                used.flushdb()
            registry.delete(_redis_claim(number))
    except redis.ConnectionError as error:
        raise ServiceMissingError(f"Redis: {error}") from error


def _claim_redis_number(registry: redis.Redis, url: str) -> int:
    for number in REDIS_DATABASES:
        with redis.Redis.from_url(_with_path(url, str(number))) as candidate:
            if candidate.dbsize() == 0 and registry.set(
                _redis_claim(number), os.getpid(), nx=True, ex=REDIS_CLAIM_S
            ):
                return number
    raise ServiceMissingError(f"Redis at {_shown(url)} has no empty database among 1 to 15")


def _redis_claim(number: int) -> str:
    return f"vm-conductor-tests:database:{number}"


def _broker_control(control: str, *arguments: str) -> None:
    command = [*shlex.split(control), "-q", *arguments]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=BROKER_CONTROL_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no reason given"]
        raise ServiceMissingError(f"RabbitMQ: {shlex.join(command)}: {lines[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceMissingError(f"RabbitMQ: {error}") from error


def _administer(url: str, statement: sql.Composed) -> None:
    plain_url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        # CREATE and DROP DATABASE refuse to run inside a transaction.
        with psycopg.connect(plain_url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement)
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[0]
        raise ServiceMissingError(f"PostgreSQL: {reason}") from error


def _unique_name() -> str:
    return f"conductor_test_{os.getpid()}_{secrets.token_hex(4)}"


def _with_path(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{path}", parts.query, ""))


def _shown(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
