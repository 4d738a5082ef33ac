"""Whatever strangers send: no process ends, nothing is lost unrecorded, no traceback is logged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from secrets import randbits

import pytest

from tests.services.hostile import hostile, send
from tests.services.processes import Process, build_body
from tests.services.test_messages import TASK, Sender, task_body
from tests.services.test_worker import waiting

QUEUES = {
    "conductor": ("conductor", "conductor", "reports", "dead_letters"),
    "scheduler": ("scheduler",),
    "compute": ("compute_h1",),
}
MOST_MIB = 150
PATIENCE_S = 120.0


def recorded(process: Process, url: str, many: int) -> int:
    """Return how many messages were handled or kept, once they are `many` or no more come.

    What scheduler and host refuse they report: it lies in `reports` until a conductor takes it.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        passing = ("refused", "select", "published")
        found = [told for told in process.told() if told["what"] not in passing]
        kept = len(found) + waiting(url, "dead_letters") + waiting(url, "reports")
        if kept >= many or time.monotonic() > deadline or not process.alive:
            return kept
        time.sleep(0.5)


def withstands(role: str, url: str, errors: Path, seed: int, count: int) -> None:
    process = Process(role, url, errors=errors)
    try:
        process.wait_ready()
        before_mib = process.resident_mib()
        chance = Random(seed)  # the same messages for the same seed
        sent = send(url, [hostile(chance, QUEUES[role]) for _ in range(count)])
        assert sent > count // 2, "the broker took too few for this to say anything"
        assert recorded(process, url, sent) == sent, f"seed {seed}"
        assert process.alive
        assert process.resident_mib() - before_mib < MOST_MIB, f"seed {seed}"
        assert not [dead for dead in process.told(what="dead") if "handler" in dead["reason"]]
        if role == "conductor":
            request_id = str(uuid.uuid4())
            Sender(url).send(task_body(**build_body("one")), {"task": TASK, "id": request_id})
            process.expect(what="request", id=request_id)
    finally:
        process.kill()
    logged = errors.read_text(errors="replace")
    assert "Traceback" not in logged, f"seed {seed}: {logged[-3_000:]}"


@pytest.mark.parametrize("role", QUEUES)
def test_hundreds_of_hostile_messages_end_no_process_and_are_all_recorded(
    fresh_vhost: Callable[[], str], tmp_path: Path, role: str
) -> None:
    withstands(role, fresh_vhost(), tmp_path / "errors", seed=9, count=300)


@pytest.mark.chaos
@pytest.mark.parametrize("role", QUEUES)
def test_ten_thousand_hostile_messages_do_neither(
    fresh_vhost: Callable[[], str], tmp_path: Path, role: str
) -> None:
    withstands(role, fresh_vhost(), tmp_path / "errors", seed=randbits(32), count=10_000)
