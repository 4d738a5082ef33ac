"""What a rebuild changes, asks of its host, and leaves when it fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import WHOLE, ask, built, error_code, image_of
from tests.operations.world import PINNED, SHARED, World
from workers.hypervisor.fault_injection import InjectedFault, InjectedFaults


def test_a_rebuild_changes_the_image_in_place_on_a_full_host() -> None:
    world = World(hosts=1)
    instance_id = built(world, WHOLE)
    before = world.instance_by_id(instance_id)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    after = world.instance_by_id(instance_id)
    assert after.image is not None
    assert after.image.id == "img-2"
    assert after.placement == before.placement
    check_at_rest(world)


def test_an_image_that_changes_the_numa_demand_is_refused_and_nothing_changes() -> None:
    world = World(hosts=1)
    instance_id = built(world, SHARED)
    image = {"id": "img-2", "properties": {"hw_numa_nodes": 1}}
    operation = ask(world, "rebuild_instance", instance_id, image=image)
    assert error_code(world, operation) == "image_changes_numa"
    assert image_of(world, instance_id) == "img"
    check_at_rest(world)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"trait:CUSTOM_MISSING": "required"}, "trait_missing"),
        ({"trait:CUSTOM_SLOW": "required"}, "traits_contradict"),
        ({"hw_architecture": "aarch64"}, "trait_missing"),
        ({"hw_architecture": "x86_64"}, None),
    ],
)
def test_a_rebuild_asks_of_the_host_what_a_build_would(
    properties: dict[str, str], code: str | None
) -> None:
    world = World(hosts=1)
    with world.store.begin() as uow:
        host = uow.hosts.lock("host-0")
        assert host is not None
        uow.hosts.save(replace(host, traits=("HW_ARCH_X86_64",), version=host.version + 1))
    forbidden = {**SHARED, "extra_specs": {"trait:CUSTOM_SLOW": "forbidden"}}
    instance_id = built(world, forbidden)
    image = {"id": "img-2", "properties": properties}
    operation = ask(world, "rebuild_instance", instance_id, image=image)
    if code is None:
        assert world.ended(operation) is OperationState.SUCCEEDED
    else:
        assert error_code(world, operation) == code
        assert image_of(world, instance_id) == "img"


def test_a_failed_rebuild_has_the_old_image_again() -> None:
    def faults_of(_: str) -> InjectedFaults:
        return lambda call: InjectedFault(
            ending="refused" if call.verb == "rebuild" and call.nth == 0 else "done"
        )

    world = World(hosts=1, injected_faults=faults_of)
    instance_id = built(world, PINNED)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert world.ended(operation) is OperationState.FAILED
    assert image_of(world, instance_id) == "img"
    check_at_rest(world)
