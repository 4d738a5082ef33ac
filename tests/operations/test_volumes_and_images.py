"""Volume-backed instances are charged as such; images are where a build may bring them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.operations.cache_images import HOSTS_AT_ONCE
from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, error_code, image_of, on_verb
from tests.operations.world import SHARED, World

DISK = {**SHARED, "root_gb": 20}
NEEDY = {"id": "needy", "min_memory_mb": 512, "min_disk_gb": 10}


def disk_gb(world: World) -> int:
    return world.host("host-0").used.get("DISK_GB", 0)


def define(world: World, entry: str, body: Mapping[str, Any]) -> None:
    operation = world.submit("define_entry", {"entry": entry, "body": dict(body)})
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED


@pytest.mark.parametrize(
    ("image", "devices", "charged"),
    [
        ({"id": "img"}, [], 20),
        (None, [{"volume_id": "v"}], 0),
        (None, [{"volume_id": "v", "boot_index": 0}], 0),
        ({"id": "img"}, [{"volume_id": "v", "boot_index": 0}], 0),
        ({"id": "img"}, [{"volume_id": "v"}], 20),
        ({"id": "img"}, [{"volume_id": "v", "boot_index": -1}], 20),
    ],
)
def test_only_a_local_root_disk_is_charged(
    image: dict[str, str] | None, devices: list[dict[str, object]], charged: int
) -> None:
    world = World(hosts=2)
    instance_id = built(world, DISK, image=image, block_devices=devices, host="host-0")
    assert disk_gb(world) == charged
    for task in ("migrate_instance", "revert_resize"):
        assert world.ended(ask(world, task, instance_id)) is OperationState.SUCCEEDED
    assert disk_gb(world) == charged
    for task in ("shelve_instance", "unshelve_instance"):
        extra = {"offload": True} if task == "shelve_instance" else {"host": "host-0"}
        operation = ask(world, task, instance_id, **extra)
        assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    assert disk_gb(world) == charged
    check_at_rest(world)


def test_a_data_volume_does_not_switch_the_least_disk_off_and_a_boot_volume_does() -> None:
    world = World(hosts=1)
    for index, state in ((None, OperationState.FAILED), (0, OperationState.SUCCEEDED)):
        devices = [{"volume_id": "v"} if index is None else {"volume_id": "v", "boot_index": 0}]
        flavor = {**SHARED, "root_gb": 5}
        operation = world.build(flavor, image=NEEDY, block_devices=devices)
        world.run_out()
        assert world.ended(operation) is state


def test_without_an_image_some_volume_has_to_be_booted_from() -> None:
    world = World(hosts=1)
    devices = [{"volume_id": "v", "boot_index": -1}]
    operation = world.build(SHARED, image=None, block_devices=devices)
    world.run_out()
    assert error_code(world, operation) == "nothing_to_boot"


@pytest.mark.parametrize("image", [None, {"id": "img"}])
def test_no_image_is_written_over_a_volume(image: dict[str, str] | None) -> None:
    world = World(hosts=1)
    devices = [{"volume_id": "v", "boot_index": 0}]
    instance_id = built(world, DISK, image=image, block_devices=devices)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert error_code(world, operation) == "volume_backed"
    assert disk_gb(world) == 0
    check_at_rest(world)


def test_a_volume_may_go_with_a_flavor_of_a_smaller_root_disk_a_local_disk_may_not() -> None:
    world = World(hosts=1)
    smaller = {**SHARED, "root_gb": 1, "memory_mb": 256}
    volume = built(world, DISK, image=None, block_devices=[{"volume_id": "v"}])
    operation = ask(world, "resize_instance", volume, flavor=smaller)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    operation = ask(world, "resize_instance", built(world, DISK), flavor=smaller)
    assert error_code(world, operation) == "disk_shrinks"


def test_a_resize_leaves_the_image_the_memory_it_needs() -> None:
    world = World(hosts=1)
    instance_id = built(world, DISK, image=NEEDY)
    operation = ask(world, "resize_instance", instance_id, flavor={**DISK, "memory_mb": 256})
    assert error_code(world, operation) == "flavor_memory_too_small"
    ask(world, "rebuild_instance", instance_id, image={**NEEDY, "min_memory_mb": 64})
    operation = ask(world, "resize_instance", instance_id, flavor={**DISK, "memory_mb": 256})
    assert world.ended(operation) is OperationState.SUCCEEDED


@pytest.mark.parametrize(
    ("image", "aggregate_hosts", "refused"),
    [
        ("good", ["host-0"], False),
        ("evil", ["host-0"], True),
        ("good", ["host-1"], True),
        ("evil", ["host-1"], False),
    ],
)
def test_a_rebuild_brings_no_image_where_no_build_may_bring_it(
    image: str, aggregate_hosts: list[str], refused: bool
) -> None:
    world = World(hosts=2)
    instance_id = built(world, SHARED, host="host-0")
    body = {
        "name": "apart",
        "hosts": aggregate_hosts,
        "metadata": {"isolated_images": "good, other"},
    }
    define(world, "aggregate", body)
    build = world.build(SHARED, image={"id": image}, host="host-0")
    rebuild = ask(world, "rebuild_instance", instance_id, image={"id": image})
    assert (world.ended(build) is OperationState.FAILED) is refused
    assert (error_code(world, rebuild) == "isolated") is refused
    assert image_of(world, instance_id) == ("img" if refused else image)


def test_an_image_is_fetched_by_few_hosts_at_once_and_all_left_out_are_named() -> None:
    names = [f"host-{n}" for n in range(8)]
    world = World(hosts=8, injected_faults=on_verb("refused", "cache_images", "host-1", "host-6"))
    define(world, "image", {"id": "i"})
    define(world, "aggregate", {"name": "all", "hosts": names, "metadata": {}})
    world.kill_host("host-7")
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-7", "dead")
    operation = world.submit("cache_images", {"aggregate": "all", "images": ["i"]})
    most = 0
    while queues := world.waiting_queues():
        asked = [queue for queue in queues if queue.startswith("compute")]
        most = max(most, len(asked))
        world.deliver(next((queue for queue in queues if queue not in asked), queues[0]))
    world.run_out()
    error = world.operation(operation).error or {}
    assert most == HOSTS_AT_ONCE
    assert set(error["data"]["failed"]) == {"host-1", "host-6"}
    assert error["data"]["skipped"] == ["host-7"]
    assert "host-7" in error["message"]
    fetched = [n for n in names if "i" in world.hosts[n].hypervisor.images()]
    assert fetched == ["host-0", "host-2", "host-3", "host-4", "host-5"]
