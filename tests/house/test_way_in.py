"""Few calls stand between Celery and the conductor. `python -m tests.house.way_in` prints them."""

from __future__ import annotations

from models.messages.internal import HEARTBEAT
from models.messages.requests import REQUESTS
from tests.house.way_in import way_in


def test_a_request_reaches_the_conductor_by_few_calls() -> None:
    for task in REQUESTS:
        assert 2 < len(way_in(task)) <= 5


def test_a_report_reaches_the_conductor_by_few_calls() -> None:
    assert 2 < len(way_in(HEARTBEAT)) <= 6
