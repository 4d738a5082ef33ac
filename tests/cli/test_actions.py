"""What was done to one instance: who, what, when, with which result."""

from __future__ import annotations

from typing import Any

from conductor.cli.requests.wait_display import await_end
from conductor.processes.embedded.embedded_system import Embedded
from models.ids import OperationId, child_instance_id
from tests.cli.running import Cli, one_line

WHO = {"project_id": "demo", "user_id": "ann", "request_id": "req-7"}


def asked(system: Embedded, task: str, **arguments: Any) -> str:
    """Ask as another service does, who says who it is; return the operation once it has ended."""
    operation_id = system.submit(f"conductor.{task}", {"context": WHO, **arguments})
    await_end(system.store, operation_id, 30.0)
    return operation_id


def actions(cli: Cli, instance: str) -> list[dict[str, Any]]:
    shown = cli("instances", "actions", instance, "-o", "json")
    assert shown.code == 0, shown.err
    rows: list[dict[str, Any]] = shown.json
    return rows


def who(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in WHO}


def test_a_build_that_never_found_a_host_has_an_action_with_what_the_scheduler_said(
    stocked: Cli, system: Embedded
) -> None:
    body = {"name": "homeless", "flavor": "monster", "image": "cirros"}
    operation_id = asked(system, "build_instances", instance=body)
    (row,) = actions(stocked, child_instance_id(OperationId(operation_id), 0))
    assert (row["kind"], row["state"], who(row)) == ("build_instance", "FAILED", WHO)
    assert row["error"]["code"] == "no_valid_host"
    assert row["created_at"] <= row["ended_at"]
    events = {event["event"]: event["detail"] for event in row["events"]}
    assert events["accepted"] == "conductor.build_instances"
    assert events["scheduled"].startswith("no valid host: 3 hosts")
    assert row["parent_id"] == operation_id


def test_a_deleted_instance_still_tells_everything_that_was_done_to_it(
    stocked: Cli, system: Embedded
) -> None:
    body = {"name": "gone", "flavor": "small", "image": "cirros", "host": "beta"}
    operation_id = asked(system, "build_instances", instance=body)
    instance_id = child_instance_id(OperationId(operation_id), 0)
    moved = asked(system, "migrate_instance", instance_id=instance_id)
    for task in ("confirm_resize", "stop_instance", "delete_instance"):
        asked(system, task, instance_id=instance_id)
    assert stocked("instances", "show", instance_id).json["state"] == "deleted"
    rows = actions(stocked, instance_id)
    assert [row["kind"] for row in rows] == [
        "build_instance",
        "migrate_instance",
        "confirm_resize",
        "stop_instance",
        "delete_instance",
    ]
    assert {row["state"] for row in rows} == {"SUCCEEDED"}
    assert all(who(row) == WHO for row in rows)
    migration = rows[1]["migration"]
    assert (rows[1]["operation_id"], migration["source"]) == (moved, "beta")
    assert (migration["kind"], migration["state"]) == ("migration", "confirmed")
    assert [row["migration"] for row in rows if row is not rows[1]] == [None] * 4
    assert any(event["event"] == "scheduled" for event in rows[0]["events"])


def test_a_failed_action_says_why_and_a_person_reads_it_in_a_table(
    stocked: Cli, system: Embedded
) -> None:
    body = {"name": "wide", "flavor": "small", "image": "cirros"}
    operation_id = asked(system, "build_instances", instance=body)
    instance_id = child_instance_id(OperationId(operation_id), 0)
    asked(system, "resize_instance", instance_id=instance_id, flavor="monster")
    failed = actions(stocked, instance_id)[-1]
    assert (failed["state"], failed["migration"]["state"]) == ("FAILED", "error")
    assert failed["error"]["code"] == "no_valid_host"
    table = stocked("instances", "actions", "wide", "-o", "table").out
    for words in ("demo ann req-7", "resize_instance", "FAILED", "→ ?, error", "no valid host"):
        assert words in table
    asked(system, "delete_instance", instance_id=instance_id)


def test_the_operation_says_who_asked_too(stocked: Cli, system: Embedded) -> None:
    body = {"name": "mine", "flavor": "small", "image": "cirros"}
    operation_id = asked(system, "build_instances", instance=body)
    assert who(stocked("operations", "show", operation_id).json) == WHO
    instance_id = child_instance_id(OperationId(operation_id), 0)
    asked(system, "delete_instance", instance_id=instance_id)


def test_an_instance_that_nobody_knows_has_no_actions(stocked: Cli) -> None:
    for nobody in ("nobody", "00000000-0000-4000-8000-000000000000"):
        refused = stocked("instances", "actions", nobody)
        assert refused.code == 2
        assert one_line(refused.err)
        assert f"instance is {nobody}" in refused.err
