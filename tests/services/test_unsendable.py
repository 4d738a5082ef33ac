"""What AMQP cannot carry is told apart from a broker that is away, and leaves with nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery
from kombu import Connection

from models.errors import Unreachable
from models.messages.internal import REPORTS, OutgoingMessage
from tasks.app import make_app
from tasks.routing import declare_topology
from tasks.sending.batch_confirms import LARGEST_BYTES
from tasks.sending.celery_carrier import CeleryCarrier

BAD = {
    "a queue of 300 letters": OutgoingMessage("compute_" + "h" * 300, "compute.spawn", {}),
    "an id of 300 letters": OutgoingMessage(REPORTS, "reports.reply", {}, id="i" * 300),
    "a body that is no JSON": OutgoingMessage(REPORTS, "reports.reply", {"a": object()}),
    "half a character as the task": OutgoingMessage(REPORTS, "reports.\ud800", {}),
    "half a character as what is shown": OutgoingMessage(
        REPORTS, "reports.reply", {}, shown="\ud800"
    ),
    "more than a broker takes": OutgoingMessage(
        REPORTS, "reports.reply", {"a": "x" * LARGEST_BYTES}
    ),
}


@pytest.fixture
def app(fresh_vhost: Callable[[], str]) -> Celery:
    url = fresh_vhost()
    with Connection(url) as connection:
        declare_topology(connection, ())
    return make_app(url)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_carried_is_named_and_the_others_have_left(
    app: Celery, bad: OutgoingMessage
) -> None:
    carrier = CeleryCarrier(app)
    good = [OutgoingMessage(REPORTS, "reports.heartbeat", {"n": number}) for number in range(2)]
    with pytest.raises(Unreachable) as caught:
        carrier.send([good[0], bad, good[1]])
    assert caught.value.code == "unsendable"
    assert caught.value.data["unsent"] == [bad.id]
    assert list(caught.value.data["unsendable"]) == [bad.id]
    carrier.send(good)
    carrier.close()
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        bodies = [channel.basic_get(REPORTS, no_ack=True) for _ in range(5)]
    assert [body is not None for body in bodies] == [True, True, True, True, False]
