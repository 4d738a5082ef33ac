"""The reporter loses no letter, whatever the carrier says."""

from collections.abc import Sequence
from functools import partial

from tenacity import Retrying, stop_after_attempt

from models.errors import Rejected, Unreachable
from models.messages.letters import Letter
from workers.reporter import Reporter

ONCE = Retrying(stop=stop_after_attempt(1), reraise=True)


def letter(name: str) -> Letter:
    return Letter(queue="reports", task="reports.reply", body={}, id=name)


class Carrier:
    """Takes all but the letters it is told to refuse."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.batches: list[int] = []
        self.refused: set[str] = set()
        self.down = False

    def __call__(self, letters: Sequence[Letter]) -> None:
        self.batches.append(len(letters))
        if self.down:
            raise Unreachable("down", "down")
        if any(each.id in self.refused for each in letters):
            raise Rejected("too_large", "too large")
        self.taken += [each.id for each in letters]


def reporter(carrier: Carrier, posted: list[str]) -> Reporter:
    return Reporter(carrier, posted.append, ONCE)


def test_letters_that_wait_together_leave_together_and_in_order() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(letter, name))
    out.flush()
    assert (carrier.taken, carrier.batches, posted) == (["a", "b", "c"], [3], ["a", "b", "c"])


def test_a_letter_submitted_while_another_is_posted_is_not_forgotten() -> None:
    taken: list[str] = []
    posted: list[str] = []

    def post(letters: Sequence[Letter]) -> None:
        taken.extend(each.id for each in letters)
        if taken == ["a"]:
            out.submit("b", lambda: letter("b"))
            out.flush()

    out = Reporter(post, posted.append, ONCE)
    out.submit("a", lambda: letter("a"))
    out.flush()
    assert taken == posted == ["a", "b"]


def test_a_letter_the_carrier_refuses_holds_up_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    carrier.refused.add("b")
    out = reporter(carrier, posted)
    for name in "abc":
        out.submit(name, partial(letter, name))
    out.flush()
    assert carrier.taken == posted == ["a", "c"]
    carrier.refused.clear()
    out.flush()
    assert carrier.taken == ["a", "c", "b"]


def test_a_letter_that_cannot_be_written_yet_holds_up_no_other() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    ready = False

    def hello() -> Letter:
        if not ready:
            raise Unreachable("silent", "the hypervisor is silent")
        return letter("hello")

    out.submit("hello", hello)
    out.submit("a", lambda: letter("a"))
    out.flush()
    assert carrier.taken == ["a"]
    ready = True
    out.flush()
    assert carrier.taken == ["a", "hello"]


def test_only_a_probe_tries_a_carrier_that_was_down() -> None:
    carrier, posted = Carrier(), list[str]()
    out = reporter(carrier, posted)
    carrier.down = True
    out.submit("a", lambda: letter("a"))
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
    out.submit("a", lambda: letter("a"))
    out.close()
    out.flush(probe=True)
    assert carrier.batches == []
