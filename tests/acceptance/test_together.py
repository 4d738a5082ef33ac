"""Many at once, on two conductors and two schedulers: exact, whoever comes first."""

from __future__ import annotations

import uuid
from collections import Counter

from models.lifecycle import OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import PINNED, SHARED, build_body, instance_of

Ended = OperationState


def test_twenty_parallel_builds_on_a_quota_of_ten_are_ten(fleet: Fleet) -> None:
    project = f"p-{uuid.uuid4()}"
    fleet.define("quota", name=project, instances=10)
    body = {**build_body(SHARED), "context": {"project_id": project}}
    builds = [fleet.sender.send("build_instances", body) for _ in range(20)]
    records = fleet.all_ended(builds)
    assert Counter(record.state for record in records) == {Ended.SUCCEEDED: 10, Ended.FAILED: 10}
    codes = {(record.error or {}).get("code") for record in records}
    assert codes == {None, "quota_exceeded"}
    with fleet.store.read() as uow:
        assert uow.instances.usage(project)["instances"] == 10
    built = [record.id for record in records if record.state is Ended.SUCCEEDED]
    fleet.all_ended([fleet.sender.ask("delete", instance_of(id_)) for id_ in built])
    again = fleet.sender.send("build_instances", body)
    assert fleet.ended(again).state is Ended.SUCCEEDED


def test_claims_on_one_host_fill_it_to_the_last_cpu_and_no_further(fleet: Fleet) -> None:
    """Room for eight of two CPUs each: nine ask, one is told that there is none."""
    builds = [fleet.sender.build(PINNED, host="alpha") for _ in range(9)]
    records = fleet.all_ended(builds)
    assert Counter(record.state for record in records) == {Ended.SUCCEEDED: 8, Ended.FAILED: 1}
    error = next(record.error for record in records if record.error)
    assert error["kind"] == "NoValidHost"
    host = fleet.host("alpha")
    assert host.used["PCPU"] == 16
    assert host.topology.cells[0].pinned_cpus == host.topology.cells[0].dedicated_cpus
    fleet.all_ended([fleet.sender.ask("delete", instance_of(id_)) for id_ in builds])
    assert not any(fleet.host("alpha").used.values())


def test_fifty_claims_with_room_for_forty_nine(fleet: Fleet) -> None:
    """Exactly one "no capacity", and nobody is told of a conflict."""
    flavor = {"vcpus": 1, "memory_mb": 668}
    room = 32_768 // 668
    assert room == 49
    builds = [fleet.sender.build(flavor, host="alpha") for _ in range(50)]
    records = fleet.all_ended(builds)
    kinds = Counter((record.error or {}).get("kind") for record in records)
    assert kinds == {None: 49, "NoValidHost": 1}, [r.error for r in records if r.error]
    fleet.all_ended([fleet.sender.ask("delete", instance_of(id_)) for id_ in builds])


def test_all_or_none_of_a_request_for_several(fleet: Fleet) -> None:
    build = fleet.sender.build(PINNED, count=9, host="alpha")
    record = fleet.ended(build)
    assert record.state is Ended.FAILED
    assert not any(fleet.host("alpha").used.values())
    for index in range(9):
        instance = fleet.instance(instance_of(build, index))
        assert instance.host is None
        assert instance.fault is not None
