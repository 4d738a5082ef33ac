"""How much waits in a queue is asked of the broker, which keeps every message where it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kombu import Connection

from models.errors import Unreachable
from models.messages.internal import CONDUCTOR, OutgoingMessage
from tasks.app import make_app
from tasks.queue_depths import ROLE_QUEUES, Depth, queue_depths
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import CeleryCarrier


def test_depths_are_of_what_is_declared_and_change_nothing(
    fresh_vhost: Callable[[], str],
) -> None:
    url = fresh_vhost()
    app = make_app(url)
    assert queue_depths(app, ["h.1"]) == {}
    with Connection(url) as connection:
        declare_topology(connection, ["h.1"])
    carrier = CeleryCarrier(app)
    carrier.send([OutgoingMessage(CONDUCTOR, "conductor.build_instances", {}) for _ in range(3)])
    carrier.close()
    for _ in range(2):
        depths = queue_depths(app, ["unknown", "h.1"])
        assert depths[CONDUCTOR] == Depth(messages=3, consumers=0)
        assert set(depths) == {*ROLE_QUEUES, "compute_h_2e1"}


def test_a_broker_that_is_away_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        queue_depths(make_app("amqp://guest:secret@127.0.0.1:1//"))
