"""Processes that end in order, and hosts that come back changed."""

from __future__ import annotations

import time

from models.lifecycle import InstanceState, OperationState
from tests.acceptance.conftest import HOSTS, WIRED
from tests.acceptance.fleet import HARDWARE, Fleet
from tests.acceptance.sending import SHARED, child_of, instance_of
from tests.acceptance.staged import Staged
from tests.acceptance.trips import EVERY_KIND, define_rack
from tests.operations.world import small_host

OTHER_HARDWARE = small_host(cpus=8, memory_mib=32_768)


def test_sigterm_drains_every_role_and_loses_nothing(fleet: Fleet) -> None:
    leaving = ("conductor-1", "scheduler-1", "compute-alpha")
    fleet.restart("compute-alpha", "--habit", "latency_s=0.5")
    fleet.start()
    builds = [fleet.sender.build(SHARED, host="alpha") for _ in range(12)]
    ids = [instance_of(build) for build in builds]
    fleet.until(
        lambda: any(fleet.journaled("alpha", "accepted", id_, "spawn") for id_ in ids),
        "alpha to be at work",
    )
    for name in leaving:
        fleet.members[name].ask_to_end()
    assert [fleet.members[name].wait_end() for name in leaving] == [0, 0, 0]
    begun = [id_ for id_ in ids if fleet.effects(id_, "spawn")]
    assert begun, "what was at work has been finished"
    fleet.start()
    records = fleet.all_ended(builds)
    assert {record.state for record in records} == {OperationState.SUCCEEDED}
    assert [fleet.effects(id_, "spawn") for id_ in ids] == [1] * len(ids)
    fleet.all_ended([fleet.sender.ask("delete", id_) for id_ in ids])


def test_everybody_killed_and_one_of_each_started_ends_every_operation(fleet: Fleet) -> None:
    """Nothing is remembered but by the database, the journals and the broker."""
    fleet.restart("compute-alpha", "--habit", "latency_s=0.3")
    fleet.start()
    builds = [fleet.sender.build(SHARED, host="alpha") for _ in range(12)]
    fleet.until(lambda: any(map(fleet.operation, builds)), "the first build to be accepted")
    for member in fleet.members.values():
        member.kill()
    fleet.start("conductor-2", "scheduler-2", "compute-alpha")
    records = fleet.all_ended(builds)
    assert {record.state for record in records} == {OperationState.SUCCEEDED}
    ids = [instance_of(build) for build in builds]
    assert [fleet.effects(id_, "spawn") for id_ in ids] == [1] * len(ids)
    fleet.start()
    fleet.all_ended([fleet.sender.ask("delete", id_) for id_ in ids])


def test_everybody_is_killed_in_the_middle_of_every_operation(fleet: Fleet) -> None:
    define_rack(fleet, WIRED)
    staged = Staged(fleet, HOSTS[:-1], HOSTS[-1])
    staged.hold_in_the_middle()
    for member in fleet.members.values():
        member.kill()
        fleet.figures.faults[f"{member.name.partition('-')[0]} killed"] += 1
    fleet.start()
    staged.check_all_end(time.monotonic(), "a death of everybody, once all had started")
    assert set(staged.kinds.values()) == EVERY_KIND


def test_hosts_outlive_an_outage_of_the_conductors(fleet: Fleet) -> None:
    """An hour without conductors is no hour of dead hosts, whatever is looked at first."""
    fleet.restart("compute-alpha", "--habit", "latency_s=1")
    fleet.start()
    build = fleet.sender.build(host="alpha")
    instance_id = instance_of(build)
    fleet.until(
        lambda: fleet.journaled("alpha", "accepted", instance_id, "spawn"), "alpha to be at work"
    )
    for name in ("conductor-1", "conductor-2"):
        fleet.members[name].kill()
    fleet.stops.let_all_be_silent()
    fleet.start()
    assert fleet.ended(build).state is OperationState.SUCCEEDED
    child = fleet.operation(child_of(build))
    assert child is not None
    assert child.attempts == ()
    assert fleet.effects(instance_id, "spawn") == 1


def test_a_host_with_guests_that_returns_changed_is_degraded_not_overwritten(
    fleet: Fleet,
) -> None:
    build = fleet.sender.build(host="delta")
    fleet.ended(build)
    before, instance = fleet.host("delta"), fleet.instance(instance_of(build))
    fleet.write_hardware("delta", OTHER_HARDWARE)
    fleet.restart("compute-delta")
    fleet.until(lambda: fleet.host("delta").degraded, "the other hardware to be noticed")
    shown = fleet.command("hosts", "show", "delta")
    assert shown["state"] == "degraded"
    assert "hardware changed" in shown["reason"]
    assert fleet.host("delta").topology == before.topology
    assert fleet.host("delta").used == before.used
    assert fleet.instance(instance.id).placement == instance.placement
    refused = fleet.ended(fleet.sender.build(host="delta"))
    assert refused.state is OperationState.FAILED
    assert refused.error is not None
    assert refused.error["kind"] == "NoValidHost"

    fleet.write_hardware("delta", HARDWARE)
    fleet.restart("compute-delta")
    fleet.until(lambda: not fleet.host("delta").degraded, "the old hardware to be recognised")
    stopped = fleet.sender.ask("stop", instance.id)
    assert fleet.ended(stopped).state is OperationState.SUCCEEDED
    assert fleet.instance(instance.id).state is InstanceState.STOPPED


def test_an_empty_host_that_returns_changed_is_taken_as_it_is_now(fleet: Fleet) -> None:
    fleet.write_hardware("delta", OTHER_HARDWARE)
    fleet.restart("compute-delta")
    fleet.until(
        lambda: fleet.host("delta").inventory["PCPU"].total == 8, "the new hardware to be taken in"
    )
    assert fleet.host("delta").degraded is None
    fleet.write_hardware("delta", HARDWARE)
    fleet.restart("compute-delta")
    fleet.until(lambda: fleet.host("delta").inventory["PCPU"].total == 16, "it to be as before")
