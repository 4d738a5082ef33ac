"""Probes of `health`: whether broker and result backend answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from amqp.exceptions import AMQPError
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

from conductor.cli.health_findings import Finding
from models.errors import ConductorError, Unreachable
from models.units import seconds_text
from tasks.app import make_app

_TIMEOUT_S: Final = 3


def tried(name: str, needed: bool, probe: Callable[[], None]) -> Finding:
    """Return how a service has answered its probe."""
    started = time.monotonic()
    try:
        probe()
    except ConductorError as error:
        return Finding(name, "away", needed, error.message)
    return Finding(name, "ok", needed, answered_in(started))


def answered_in(started: float) -> str:
    """Return the time since `started`, by the monotonic clock, as a finding names it."""
    return f"answered in {seconds_text(time.monotonic() - started)}"


def probe_broker(url: str) -> None:
    """Connect to the broker; raise `Unreachable` when that fails."""
    app = make_app(url)
    with app.connection_for_read(heartbeat=0) as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=_TIMEOUT_S)
        except (OSError, AMQPError, KombuError) as error:
            where = connection.as_uri()
            raise Unreachable("broker_unreachable", f"{where}: {error}") from error


def probe_redis(url: str) -> None:
    """Ping the result backend; raise `Unreachable` when that fails."""
    client: Any = Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
    try:
        client.ping()
    except RedisError as error:
        raise Unreachable("results_unreachable", str(error)) from error
    finally:
        client.close()
