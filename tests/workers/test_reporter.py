"""The reporter loses no letter, whatever the carrier says."""

from collections.abc import Sequence
from functools import partial

from tenacity import Retrying, stop_after_attempt

from models.errors import Rejected, Unreachable
from models.messages.internal import OutgoingMessage
from workers.reporter import Reporter

ONCE = Retrying(stop=stop_after_attempt(1), reraise=True)


def outgoing(name: str) -> OutgoingMessage:
    return OutgoingMessage(queue="reports", task="reports.reply", body={}, id=name)


class Carrier:
    """Takes all but the letters it is told to refuse."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.batches: list[int] = []
        self.refused: set[str] = set()
        self.down = False

    def __call__(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        self.batches.append(len(outgoing_messages))
        if self.down:
            raise Unreachable("down", "down")
        if any(outgoing_message.id in self.refused for outgoing_message in outgoing_messages):
            raise Rejected("too_large", "too large")
        self.taken += [outgoing_message.id for outgoing_message in outgoing_messages]


def reporter(carrier: Carrier, posted: list[str]) -> Reporter:
    return Reporter(carrier, posted.append, ONCE)


def test_letters_that_wait_together_leave_together_and_in_order() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(outgoing, name))
    out.flush()
    assert (carrier.taken, carrier.batches, posted) == (["a", "b", "c"], [3], ["a", "b", "c"])


def test_a_letter_submitted_while_another_is_posted_is_not_forgotten() -> None:
    taken: list[str] = []
    posted: list[str] = []

    def post(outgoing_messages: Sequence[OutgoingMessage]) -> None:
        taken.extend(outgoing_message.id for outgoing_message in outgoing_messages)
        if taken == ["a"]:
            out.submit("b", lambda: outgoing("b"))
            out.flush()

    out = Reporter(post, posted.append, ONCE)
    out.submit("a", lambda: outgoing("a"))
    out.flush()
    assert taken == posted == ["a", "b"]


def test_a_letter_the_carrier_refuses_holds_up_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    carrier.refused.add("b")
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(outgoing, name))
    out.flush()
    assert carrier.taken == posted == ["a", "c"]
    carrier.refused.clear()
    out.flush()
    assert carrier.taken == ["a", "c", "b"]


def test_a_letter_that_cannot_be_written_yet_holds_up_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    ready = False

    def host_registration() -> OutgoingMessage:
        if not ready:
            raise Unreachable("silent", "the hypervisor is silent")
        return outgoing("hello")

    out.submit("hello", host_registration)
    out.submit("a", lambda: outgoing("a"))
    out.flush()
    assert carrier.taken == ["a"]
    ready = True
    out.flush()
    assert carrier.taken == ["a", "hello"]


def test_only_a_probe_tries_a_carrier_that_was_down() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    carrier.down = True
    out.submit("a", lambda: outgoing("a"))
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
    out.submit("a", lambda: outgoing("a"))
    out.close()
    out.flush(probe=True)
    assert carrier.batches == []
