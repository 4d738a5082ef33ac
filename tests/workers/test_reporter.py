"""The reporter loses no message, whatever the carrier says."""

from collections.abc import Sequence
from functools import partial

from tenacity import Retrying, stop_after_attempt

from models.errors import Rejected, Unreachable
from models.messages.internal import OutgoingMessage
from workers.reporter import Reporter

ONCE = Retrying(stop=stop_after_attempt(1), reraise=True)


def message(name: str) -> OutgoingMessage:
    return OutgoingMessage(queue="reports", task="reports.reply", body={}, id=name)


class Carrier:
    """Takes every message except those in `refused`."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.batches: list[int] = []
        self.refused: set[str] = set()
        self.down = False

    def __call__(self, messages: Sequence[OutgoingMessage]) -> None:
        self.batches.append(len(messages))
        if self.down:
            raise Unreachable("down", "down")
        if any(sent.id in self.refused for sent in messages):
            raise Rejected("too_large", "too large")
        self.received += [sent.id for sent in messages]


def reporter(carrier: Carrier, posted: list[str]) -> Reporter:
    return Reporter(carrier, posted.append, ONCE)


def test_messages_that_wait_together_leave_together_and_in_order() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(message, name))
    out.flush()
    assert (carrier.received, carrier.batches, posted) == (["a", "b", "c"], [3], ["a", "b", "c"])


def test_a_message_submitted_while_another_is_posted_is_not_forgotten() -> None:
    received: list[str] = []
    posted: list[str] = []

    def post(messages: Sequence[OutgoingMessage]) -> None:
        received.extend(sent.id for sent in messages)
        if received == ["a"]:
            out.submit("b", lambda: message("b"))
            out.flush()

    out = Reporter(post, posted.append, ONCE)
    out.submit("a", lambda: message("a"))
    out.flush()
    assert received == posted == ["a", "b"]


def test_a_message_the_carrier_refuses_delays_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    carrier.refused.add("b")
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(message, name))
    out.flush()
    assert carrier.received == posted == ["a", "c"]
    carrier.refused.clear()
    out.flush()
    assert carrier.received == ["a", "c", "b"]


def test_a_message_that_cannot_be_written_yet_delays_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    ready = False

    def registration() -> OutgoingMessage:
        if not ready:
            raise Unreachable("silent", "the hypervisor is silent")
        return message("registration")

    out.submit("registration", registration)
    out.submit("a", lambda: message("a"))
    out.flush()
    assert carrier.received == ["a"]
    ready = True
    out.flush()
    assert carrier.received == ["a", "registration"]


def test_only_a_probe_tries_a_carrier_that_was_down() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    carrier.down = True
    out.submit("a", lambda: message("a"))
    out.flush()
    out.flush()
    assert carrier.batches == [1]
    carrier.down = False
    out.flush()
    assert posted == []
    out.flush(probe=True)
    assert posted == ["a"]


def test_a_closed_reporter_sends_nothing() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    out.submit("a", lambda: message("a"))
    out.close()
    out.flush(probe=True)
    assert carrier.batches == []
