"""Whose word a report is follows from the account that sent it, never from what it says."""

from __future__ import annotations

from typing import Any

import pytest

from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REGISTRATION,
    REPLY,
    SCHEDULER,
)
from tasks.app import make_app
from tasks.broker_accounts import account_in, misspoken

OWN = "conductor"
SPEAKERS = {
    HEARTBEAT: "host",
    REGISTRATION: "host",
    INVENTORY_REPORT: "host",
    PROGRESS: "sender",
    REPLY: "sender",
}


def refused(account: str | None, host: Any, task: str = HEARTBEAT) -> bool:
    return misspoken(task, {SPEAKERS[task]: host}, account, OWN) is not None


@pytest.mark.parametrize("task", SPEAKERS)
def test_a_host_speaks_for_itself_in_every_report(task: str) -> None:
    assert not refused("compute_node1_2eexample", "node1.example", task)
    assert refused("compute_node1_2eexample", "node2.example", task)


@pytest.mark.parametrize(
    "host",
    [SCHEDULER, "/conductors", "", None, 7, ["host-1"], "host-1 ", "host-2", "compute_host-1"],
)
def test_a_host_speaks_for_nobody_else(host: Any) -> None:
    assert refused("compute_host-1", host)
    assert misspoken(REGISTRATION, {}, "compute_host-1", OWN) is not None


def test_a_host_called_like_the_scheduler_does_not_answer_for_it() -> None:
    assert refused("compute_scheduler", SCHEDULER, REPLY)


def test_the_field_of_another_report_says_nothing() -> None:
    body = {"host": "host-1", "sender": "host-2"}
    assert misspoken(REPLY, body, "compute_host-1", OWN) is not None
    assert misspoken(HEARTBEAT, body, "compute_host-2", OWN) is not None


@pytest.mark.parametrize(
    "account", [None, "", "sender_web", "listener_web", "somebody", "Compute_h"]
)
def test_who_is_neither_a_host_nor_ours_says_nothing_at_all(account: str | None) -> None:
    assert refused(account, "h")


def test_the_conductors_own_account_speaks_for_everybody() -> None:
    assert not refused(OWN, "host-1")
    assert not refused(OWN, SCHEDULER, REPLY)


def test_the_account_is_that_of_the_url() -> None:
    assert account_in("amqp://compute_host-1:secret@broker/vhost") == "compute_host-1"
    assert account_in("amqp://a%40b:secret@broker/vhost") == "a@b"
    assert account_in("amqp://broker/") == "guest"


def test_no_task_of_celerys_own_is_known_to_any_process() -> None:
    assert [name for name in make_app("amqp://").tasks if name.startswith("celery.")] == []
