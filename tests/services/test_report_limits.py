"""What an account sends too much of is dropped unread or only counted, apart from all others."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from models.messages.internal import HEARTBEAT, REPORTS
from tasks.report_limits import (
    MAX_BYTES,
    MAX_REPORT_BYTES,
    NOTICED_DROPS,
    REFUSAL_RATE,
    REPORT_RATES,
    SHOWN_FOR_S,
    TOO_MANY,
    ReportLimits,
    complaint_of_report_size,
)

OWN, HOST, OTHER = "conductor", "compute_h1", "compute_h2"


@dataclass
class Clock:
    now: float = 0.0
    counted: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> ReportLimits:
    return ReportLimits(OWN, clock.counted.append, clock)


def report(account: str | None, task: Any = HEARTBEAT, body: bytes = b"", **headers: Any) -> Any:
    properties = {} if account is None else {"user_id": account}
    return SimpleNamespace(properties=properties, headers={"task": task, **headers}, body=body)


def taken(limits: ReportLimits, message: Any, tries: int) -> int:
    return sum(not limits.exceeds_rate(message) for _ in range(tries))


@pytest.mark.parametrize("task", REPORT_RATES)
def test_a_flood_is_taken_at_its_rate_and_the_rest_dropped(
    limits: ReportLimits, clock: Clock, task: str
) -> None:
    rate = REPORT_RATES[task]
    assert taken(limits, report(HOST, task), 20_000) == rate.burst
    clock.now += 2.0
    assert taken(limits, report(HOST, task), 20_000) == 2 * rate.per_s
    assert set(clock.counted) == {TOO_MANY}


def test_others_and_other_reports_are_taken_beside_a_flood(limits: ReportLimits) -> None:
    taken(limits, report(HOST), 20_000)
    assert taken(limits, report(OTHER), 1) == 1
    for task in set(REPORT_RATES) - {HEARTBEAT}:
        assert taken(limits, report(HOST, task), 1) == 1


def test_a_worker_as_we_have_it_never_reaches_its_limit(limits: ReportLimits, clock: Clock) -> None:
    for _ in range(1_000):
        clock.now += 5.0  # its heartbeat, ten copies that progress each second, its list of guests
        assert taken(limits, report(HOST), 2) == 2
        assert taken(limits, report(HOST, "reports.progress"), 50) == 50
        assert taken(limits, report(HOST, "reports.manifest"), 1) == 1


def test_unsigned_reports_share_one_limit_and_our_own_account_has_none(
    limits: ReportLimits,
) -> None:
    assert taken(limits, report(None), 1_000) == REPORT_RATES[HEARTBEAT].burst
    assert taken(limits, report(OWN), 1_000) == 1_000


@pytest.mark.parametrize("task", [None, 7, "conductor.build_instances", ["x"]])
def test_what_is_no_report_is_left_to_be_refused(limits: ReportLimits, task: Any) -> None:
    assert taken(limits, report(HOST, task), 1_000) == 1_000


def test_refusals_beyond_their_rate_are_counted_and_not_kept(
    limits: ReportLimits, clock: Clock
) -> None:
    kept = [limits.keeps_refusal(HOST, "account_refused") for _ in range(1_000)]
    assert kept == [True] * REFUSAL_RATE.burst + [False] * (1_000 - REFUSAL_RATE.burst)
    assert clock.counted == ["account_refused"] * 1_000
    assert limits.keeps_refusal(OTHER, "reply_refused")


@pytest.mark.parametrize(
    ("deaths", "bounded"),
    [
        ([{"queue": REPORTS}], True),
        ([{"queue": "conductor"}], False),
        ([], False),
        (None, False),
        ("x", False),
        (["x"], False),
    ],
)
def test_only_reports_among_the_dead_letters_are_bounded(
    limits: ReportLimits, deaths: Any, bounded: bool
) -> None:
    message = report(HOST, **{"x-death": deaths})
    kept = sum(limits.keeps_dead_letter(message) for _ in range(1_000))
    assert kept == (REFUSAL_RATE.burst if bounded else 1_000)


def test_a_report_is_measured_before_it_is_decoded() -> None:
    assert complaint_of_report_size(report(HOST, "reports.reply", b"x" * MAX_REPORT_BYTES)) is None
    for task, size in (("reports.reply", MAX_REPORT_BYTES), (HEARTBEAT, MAX_BYTES[HEARTBEAT])):
        found = complaint_of_report_size(report(HOST, task, b"x" * (size + 1)))
        assert found == f"the body has {size + 1} bytes: a report has at most {size}"


def test_the_summary_names_who_is_refused_or_floods_until_it_is_silent(
    limits: ReportLimits, clock: Clock
) -> None:
    taken(limits, report(OTHER), NOTICED_DROPS)  # an outage leaves as many behind
    assert limits.summary() is None
    limits.keeps_refusal("", "account_refused")
    taken(limits, report(HOST), 2 * NOTICED_DROPS)
    dropped = 2 * NOTICED_DROPS - REPORT_RATES[HEARTBEAT].burst
    told = f'"{HOST}": {dropped} {TOO_MANY}; no account: 1 account_refused'
    assert limits.summary() == told
    clock.now += SHOWN_FOR_S + 1
    assert limits.summary() is None


def test_the_summary_names_three_accounts_and_counts_the_others(limits: ReportLimits) -> None:
    for number, times in zip(itertools.count(), (5, 4, 3, 2, 1)):
        for _ in range(times):
            limits.keeps_refusal(f"compute_{number}", "reply_refused")
    told = limits.summary() or ""
    assert told.startswith('"compute_0": 5 reply_refused; "compute_1": 4')
    assert told.endswith('"compute_2": 3 reply_refused; 2 more accounts')
