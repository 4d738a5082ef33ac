"""What a process does by the clock goes on whatever fails, and says so without flooding its log."""

from __future__ import annotations

from itertools import count

from structlog.testing import capture_logs

from conductor.processes.periodic import Job, periodic_jobs
from tests.limits import wait_for


def test_a_job_that_fails_every_round_is_one_line_a_minute() -> None:
    rounds = count(1)
    failed: list[int] = []

    def fail() -> None:
        failed.append(next(rounds))
        raise ZeroDivisionError("a defect")

    with capture_logs() as lines, periodic_jobs(Job("sweep", fail, every_s=0.001)):
        wait_for(lambda: len(failed) >= 5, "five rounds")
    assert [line["event"] for line in lines] == ["sweep failed"]
