"""Nothing accepted is ignored: what no guest would get is refused before anything is claimed."""

from __future__ import annotations

from typing import Any

import pytest

from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built
from tests.operations.test_odd_requests import defined, refused
from tests.operations.world import SHARED, World


def specs(**entries: str) -> dict[str, Any]:
    return {**SHARED, "extra_specs": entries}


@pytest.mark.parametrize(
    ("fields", "code", "key"),
    [
        ({"networks": ["blue"]}, "not_supported", "instance.networks"),
        ({"networks": ["auto"]}, "not_supported", "instance.networks"),
        ({"networks": ["none", "none"]}, "not_supported", "instance.networks"),
        ({"networks": [{"port": "p"}]}, "not_supported", "instance.networks"),
        ({"key_name": "ann"}, "not_supported", "instance.key_name"),
        ({"key_name": ""}, "not_supported", "instance.key_name"),
        ({"security_groups": ["default"]}, "not_supported", "instance.security_groups"),
        ({"config_drive": True}, "not_supported", "instance.config_drive"),
        ({"block_devices": [{"foo": 1}]}, "field_missing", "instance.block_devices.0.volume_id"),
        (
            {"block_devices": [{"volume_id": "v", "foo": 1}]},
            "field_unknown",
            "instance.block_devices.0.foo",
        ),
        ({"user_data": "x"}, "field_unknown", "instance.user_data"),
        ({"personality": []}, "field_unknown", "instance.personality"),
        (
            {"scheduler_hints": {"diferent_host": "x"}},
            "hint_unknown",
            "instance.scheduler_hints.diferent_host",
        ),
        ({"scheduler_hints": {"group": "g"}}, "hint_unknown", "instance.scheduler_hints.group"),
    ],
)
def test_a_field_that_nobody_can_honour_is_refused_by_name(
    fields: dict[str, object], code: str, key: str
) -> None:
    world = World()
    error = refused(world, **fields)
    assert (error["code"], error["key"]) == (code, key), error
    assert world.guests() == {}


@pytest.mark.parametrize("networks", [[], ["none"]])
def test_an_instance_without_networks_is_built(networks: list[str]) -> None:
    world = World()
    assert built(world, SHARED, networks=networks, metadata={"a": "b"}, tags=["t"])
    check_at_rest(world)


UNHONOURED = [
    ("hw:cpu_polciy", "dedicated", "extra_spec_unknown"),
    ("hw:viommu_model", "intel", "not_supported"),
    ("accel:device_profile", "gpu", "not_supported"),
    ("hw:pmem", "a", "not_supported"),
    ("hw:cpu_thread_policy", "", "extra_spec_blank"),
    ("capabilities:hypervisor_typ", "x", "capability_unknown"),
    ("capabilities:hypervisor_type", "s=== x", "extra_spec_invalid"),
    ("aggregate_instance_extra_specs:disk", "<any> ssd", "extra_spec_invalid"),
    ("trait:HW_CPU_X86_AVX22", "forbidden", "trait_unknown"),
    ("trait:CUSTOM_FAST", "<in> required", "trait_invalid"),
    ("hw:cpu_policy", "s== dedicated", "cpu_policy_invalid"),
    ("resources:VCPU", ">= 1", "resources_invalid"),
]


@pytest.mark.parametrize(("key", "value", "code"), UNHONOURED)
def test_a_flavor_with_what_nobody_grants_is_made_neither_by_name_nor_in_a_request(
    key: str, value: str, code: str
) -> None:
    world = World()
    flavor = specs(**{key: value})
    error = defined(world, "flavor", {"name": "f", **flavor})
    assert (error["code"], error["key"]) == (code, key), error
    operation = world.build(flavor)
    world.run_out()
    assert (world.operation(operation).error or {})["code"] == code
    instance_id = built(world, SHARED)
    resize = ask(world, "resize_instance", instance_id, flavor={**flavor, "vcpus": 2})
    assert (world.operation(resize).error or {})["code"] == code
    check_at_rest(world)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("hw_cpu_polciy", "dedicated", "image_property_unknown"),
        ("hw_iommu_model", "intel", "not_supported"),
        ("traits_required", ["HW_CPU_X86_AVX22"], "trait_unknown"),
        ("hw_cpu_policy", "", "image_property_blank"),
    ],
)
def test_an_image_with_what_nobody_grants_is_made_nowhere_either(
    key: str, value: object, code: str
) -> None:
    world = World()
    image = {"id": "i", "properties": {key: value}}
    error = defined(world, "image", image)
    assert (error["code"], error["key"]) == (code, key), error
    assert refused(world, image=image)["code"] == code
    instance_id = built(world, SHARED)
    rebuild = ask(world, "rebuild_instance", instance_id, image=image)
    assert (world.operation(rebuild).error or {})["code"] == code
    check_at_rest(world)


@pytest.mark.parametrize(
    "key",
    ["availability_zone", "cpu_allocation_ratio", "max_instance_per_host", "filter_tenant_ids"],
)
def test_metadata_of_an_aggregate_that_only_looks_as_if_it_were_read_is_refused(key: str) -> None:
    world = World()
    body = {"name": "a", "hosts": [], "metadata": {key: "1"}}
    error = defined(world, "aggregate", body)
    assert (error["code"], error["key"]) == ("metadata_invalid", "metadata")
    assert key in str(error["message"])
    assert not defined(world, "aggregate", {"name": "b", "metadata": {"disk": "ssd"}})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("image", {"id": "i", "properties": {"hw_cpu_max_sockets": 1, "hw_cpu_max_cores": 4}}),
        ("image", {"id": "i", "properties": {"hw_locked_memory": "yes"}}),
        ("flavor", {"name": "f", **specs(**{"hw:cpu_realtime": "yes"})}),
    ],
)
def test_what_only_flavor_and_image_together_decide_is_defined(
    kind: str, body: dict[str, object]
) -> None:
    assert not defined(World(), kind, body)


def test_a_rejected_build_holds_nothing() -> None:
    world = World()
    operation = world.build(specs(**{"hw:viommu_model": "intel"}), count=3)
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    assert world.guests() == {}
    with world.store.read() as uow:
        assert not uow.instances.where()
