"""Nothing that hangs is invisible: health, lists and metrics say it within half a minute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from conductor.cli.health_findings import (
    Finding,
    of_hosts,
    of_queues,
    of_waiting,
    oldest_of,
    running_text,
)
from conductor.cli.rendering.json_views import OperationHistory, operation_view, unanswered_view
from conductor.cli.store_queries import host_statuses_of
from conductor.processes.metrics_exporter import SystemMetrics
from conductor.store import Heartbeat, OutboxRow
from models.messages.internal import ECHO, REPORTS, SCHEDULER
from tasks.queue_depths import Depth
from tests.operations.world import SHARED, World

READ = Depth(0, 1)
ROLES = dict.fromkeys(("conductor", "scheduler", "reports", "dead_letters"), READ)


def wait(world: World, seconds: float, without: str) -> None:
    for _ in range(round(seconds)):
        for queue in [
            waiting_queue for waiting_queue in world.waiting_queues() if waiting_queue != without
        ]:
            while world.bus.depths()[queue]:
                world.deliver(queue)
        world.pass_time(1.0)


def found(world: World) -> list[Finding]:
    with world.store.read() as uow:
        return list(of_waiting(uow))


def stopping(world: World) -> str:
    build = world.build(SHARED, host="host-0")
    world.run_out()
    world.all_hear = True
    return world.submit("stop_instance", {"instance_id": world.instance(build).id})


def test_an_instruction_that_no_host_answers_is_named_after_half_a_minute() -> None:
    world = World()
    stop = stopping(world)
    wait(world, 25, "compute_host-0")
    assert found(world) == []
    wait(world, 10, "compute_host-0")
    (finding,) = found(world)
    told = finding.to_json()
    assert (finding.name, finding.state) == ("unanswered", "degraded")
    assert (told["operation_id"], told["host"], told["verb"]) == (stop, "host-0", "power_off")
    assert 30.0 <= told["for_s"] <= 36.0
    assert told["since"].endswith("Z")
    assert "host-0 has not answered power_off" in finding.detail


def test_a_question_that_no_scheduler_answers_is_named_after_half_a_minute() -> None:
    world = World()
    world.build(SHARED)
    wait(world, 35, SCHEDULER)
    (finding,) = found(world)
    assert finding.to_json()["verb"] == "scheduler.select_hosts"
    assert finding.detail.startswith("the scheduler has not answered")


def test_what_a_host_says_it_is_at_work_on_is_shown_and_no_trouble_yet() -> None:
    world = World()
    stop = stopping(world)
    wait(world, 35, "compute_host-0")
    with world.store.begin() as uow:
        beat = uow.heartbeats.lock("host-0")
        assert beat is not None
        uow.heartbeats.put(replace(beat, work=({"operation_id": stop, "verb": "power_off"},)))
    (finding,) = found(world)
    assert (finding.state, "is at work on power_off" in finding.detail) == ("ok", True)


def test_many_unanswered_asks_are_ten_rows_and_a_count() -> None:
    world = World()
    for _ in range(15):
        world.build(SHARED)
    wait(world, 35, SCHEDULER)
    rows = found(world)
    assert len(rows) == 11
    assert rows[-1].detail == "5 more dispatches unanswered"


def test_lists_and_metrics_say_the_same() -> None:
    world = World()
    stop = stopping(world)
    wait(world, 40, "compute_host-0")
    record = world.operation(stop)
    view = operation_view(record, OperationHistory(), world.now)
    assert view["asked"] == unanswered_view(record, world.now)
    assert (view["asked"]["host"], view["asked"]["verb"]) == ("host-0", "power_off")
    registry = CollectorRegistry()
    registry.register(SystemMetrics(world.store, None, lambda: world.now))
    text = generate_latest(registry).decode()
    labels = '{on="compute:host-0",verb="power_off"}'
    assert f"conductor_unanswered_asks{labels} 1.0" in text
    assert f"conductor_unanswered_oldest_seconds{labels}" in text


def test_an_operation_that_has_asked_nobody_waits_for_no_answer() -> None:
    world = World()
    build = world.build(SHARED)
    world.run_out()
    assert unanswered_view(world.operation(build), world.now) is None
    assert found(world) == []


def test_messages_that_cannot_leave_are_named_with_their_queues() -> None:
    world = World()
    row = OutboxRow("m-1", world.now - 40.0, "compute_gone", "compute.spawn", {})
    with world.store.begin() as uow:
        uow.outbox.add(row)
    (finding,) = [finding for finding in found(world) if finding.name == "outbox"]
    assert finding.state == "degraded"
    assert "compute_gone" in finding.detail


def test_reports_that_nobody_reads_are_named() -> None:
    world = World()
    with world.store.begin() as uow:
        uow.heartbeats.put(Heartbeat(ECHO, "echo", world.now - 40.0))
    (finding,) = found(world)
    assert (finding.name, REPORTS in finding.detail) == ("reports", True)


@pytest.mark.parametrize("queue", ["conductor", "scheduler", "reports", "dead_letters"])
def test_a_missing_queue_and_one_that_nobody_reads_are_named(queue: str) -> None:
    assert list(of_queues(ROLES, ())) == []
    (missing,) = of_queues({name: READ for name in ROLES if name != queue}, ())
    assert (missing.name, missing.state, missing.needed) == (f"queue {queue}", "away", True)
    (unread,) = of_queues({**ROLES, queue: Depth(7, 0)}, ())
    assert (unread.name, unread.state) == (f"queue {queue}", "degraded")
    assert "7 messages" in unread.detail


def test_queues_of_hosts_that_are_missing_or_unread_are_named_ten_at_most() -> None:
    hosts = [f"h{number}" for number in range(12)]
    queues = {**ROLES, "compute_h0": Depth(3, 0), "compute_h1": READ}
    rows = list(of_queues(queues, hosts))
    assert [row.name for row in rows[:2]] == ["queue compute_h0", "queue compute_h2"]
    assert len(rows) == 11
    assert {row.state for row in rows} == {"degraded"}


def finding_of(world: World, **changes: Any) -> Finding:
    with world.store.begin() as uow:
        host = uow.hosts.lock("host-0")
        assert host is not None
        uow.hosts.save(replace(host, version=host.version + 1, **changes))
    with world.store.read() as uow:
        return of_hosts(host_statuses_of(uow, uow.hosts.where(), 30.0))


def test_a_host_that_is_degraded_is_no_fleet_that_is_well() -> None:
    world = World()
    world.pass_time(1.0)
    assert finding_of(world).state == "ok"
    bad = finding_of(world, degraded="deaf: it does not read")
    assert (bad.state, bad.detail) == (
        "degraded",
        "2 of 3 up (1 degraded): host-0: deaf: it does not read",
    )


def test_a_host_that_an_operator_took_out_is_no_trouble() -> None:
    world = World()
    world.pass_time(1.0)
    assert finding_of(world, enabled=False, disabled_reason="repair").state == "ok"
    assert finding_of(world, forced_down=True).state == "ok"


def test_the_oldest_operation_is_told_by_kind_and_by_who_is_waited_for() -> None:
    world = World()
    world.build(SHARED)
    wait(world, 35, SCHEDULER)
    with world.store.read() as uow:
        rows = oldest_of(uow.operations.census(), uow.now)
    by = {row["kind"]: row["waits_for"] for row in rows}
    assert by["build_instances"] == "scheduler"
    assert all(row["count"] >= 1 and row["oldest_s"] >= 35.0 for row in rows)
    assert "operations run, the oldest build_instance" in running_text(rows)
    assert running_text([]) == "no operation runs"
