"""What flavor and image ask of the virtual hardware reaches the host, and keeps with the guest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import find

from conductor.hosts import host_administration
from models.ids import InstanceId
from models.lifecycle import OperationState
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.virtual_hardware import VirtualHardware
from tests.hypervisors.golden_guests import DISKS, ID, KVM
from tests.hypervisors.requested_keys import KEYS, VCPUS, is_of_both, sides
from tests.operations.world import SHARED, World
from workers.hypervisor.libvirt.domain_xml.writing import domain_xml

FLAVOR = {**SHARED, "extra_specs": {"hw:watchdog_action": "reset", "quota:cpu_shares": "512"}}
IMAGE = {"id": "img", "properties": {"hw_disk_bus": "scsi", "hw_video_model": "vga"}}


SAID = [*((key, False) for key in KEYS), *((key, True) for key in KEYS if is_of_both(key))]


def hardware_at(world: World, host: str, instance_id: str) -> VirtualHardware:
    domain = world.hosts[host].hypervisor.domain(InstanceId(instance_id))
    assert domain is not None
    assert domain.spec is not None
    return domain.spec.hardware


def definition_at(world: World, instance_id: str) -> GuestDefinition:
    host = world.instance_by_id(InstanceId(instance_id)).host
    assert host is not None
    domain = world.hosts[host].hypervisor.domain(InstanceId(instance_id))
    assert domain is not None
    assert domain.spec is not None
    return domain.spec


def test_the_host_is_told_of_the_hardware_and_again_wherever_the_guest_goes() -> None:
    world = World(hosts=2)
    build = world.build(FLAVOR, image=IMAGE, host="host-0", metadata={"role": "db"})
    world.run_out()
    instance = world.instance(build)
    made = hardware_at(world, "host-0", instance.id)
    assert (made.watchdog, made.disk_bus, made.video) == ("reset", "scsi", "vga")
    assert made.cpu_share is not None
    assert made.cpu_share.shares == 512
    for task, arguments in moves():
        world.submit(task, {"instance_id": instance.id, **arguments})
        world.run_out()
        host = world.instance_by_id(instance.id).host
        assert host is not None
        assert hardware_at(world, host, instance.id) == made, task


def moves() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("live_migrate_instance", {}),
        ("migrate_instance", {}),
        ("confirm_resize", {}),
        ("rebuild_instance", {"image": {**IMAGE, "id": "other"}}),
        ("resize_instance", {"flavor": {**FLAVOR, "memory_mb": 1024}}),
        ("revert_resize", {}),
        ("resize_instance", {"flavor": {**FLAVOR, "memory_mb": 1024}}),
        ("confirm_resize", {}),
    ]


def test_a_guest_that_comes_back_has_the_hardware_and_metadata_it_had() -> None:
    world = World(hosts=2)
    build = world.build(FLAVOR, image=IMAGE, metadata={"role": "db"})
    world.run_out()
    instance_id = world.instance(build).id
    made = definition_at(world, instance_id)
    assert made.metadata == {"role": "db"}
    for task, arguments in (("shelve_instance", {"offload": True}), ("unshelve_instance", {})):
        world.submit(task, {"instance_id": instance_id, **arguments})
        world.run_out()
    after_shelving = definition_at(world, instance_id)
    assert (after_shelving.hardware, after_shelving.metadata) == (made.hardware, made.metadata)

    dead = world.instance_by_id(instance_id).host
    assert dead is not None
    world.kill_host(dead)
    with world.store.begin() as uow:
        host_administration.force_down(uow, dead, "fenced")
    world.submit("evacuate_instance", {"instance_id": instance_id})
    world.run_out()
    assert world.instance_by_id(instance_id).host != dead
    evacuated = definition_at(world, instance_id)
    assert (evacuated.hardware, evacuated.metadata) == (made.hardware, made.metadata)


SEALED = {**SHARED, "extra_specs": {"hw:tpm_version": "2.0"}}


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("migrate_instance", {}),
        ("resize_instance", {"flavor": {**SEALED, "memory_mb": 1024}}),
        ("shelve_instance", {"offload": True}),
    ],
)
def test_what_would_lose_the_state_of_a_virtual_tpm_is_refused(
    task: str, arguments: dict[str, Any]
) -> None:
    world = World(hosts=2)
    build = world.build(SEALED)
    world.run_out()
    instance = world.instance(build)
    refused = world.submit(task, {"instance_id": instance.id, **arguments})
    world.run_out()
    error = world.operation(refused).error or {}
    assert error["code"] == "tpm_state_lost"
    assert str(error["message"]).startswith(f"instance {instance.id} has a virtual TPM")
    assert world.instance_by_id(instance.id) == instance


@pytest.mark.parametrize("task", ["live_migrate_instance", "shelve_instance"])
def test_what_keeps_the_state_of_a_virtual_tpm_is_done(task: str) -> None:
    world = World(hosts=2)
    build = world.build(SEALED)
    world.run_out()
    done = world.submit(task, {"instance_id": world.instance(build).id})
    world.run_out()
    assert world.ended(done) is OperationState.SUCCEEDED


def test_an_evacuation_says_in_its_history_that_the_tpm_is_new() -> None:
    world = World(hosts=2)
    build = world.build(SEALED, host="host-0")
    world.run_out()
    world.kill_host("host-0")
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", "fenced")
    done = world.submit("evacuate_instance", {"instance_id": world.instance(build).id})
    world.run_out()
    assert world.ended(done) is OperationState.SUCCEEDED
    assert "tpm-lost" in [event.event for event in world.events(done)]


@pytest.mark.parametrize(("key", "of_image"), SAID)
def test_each_key_reaches_the_hypervisor_of_the_host(key: str, of_image: bool) -> None:
    value = find(KEYS[key].values, bool)
    specs, properties = sides(key, value)[-1 if of_image else 0]
    world = World(hosts=1)
    flavor = {"vcpus": VCPUS, "memory_mb": 512, "extra_specs": specs}
    build = world.build(flavor, image={"id": "img", "properties": properties})
    world.run_out()
    definition = definition_at(world, world.instance(build).id)
    domain = fromstring(domain_xml(ID, definition, KVM, DISKS))
    assert KEYS[key].shows(domain, value), (specs, properties)


def test_a_host_that_names_what_it_gives_gets_no_guest_that_needs_more() -> None:
    world = World(hosts=2)
    with world.store.begin() as uow:
        for name, traits in (
            ("host-0", ("COMPUTE_NODE", "COMPUTE_STORAGE_BUS_SCSI")),
            ("host-1", ("COMPUTE_NODE", "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_STORAGE_BUS_SCSI")),
        ):
            host = uow.hosts.lock(name)
            assert host is not None
            uow.hosts.save(replace(host, traits=traits, version=host.version + 1))
    build = world.build(FLAVOR, image=IMAGE)
    world.run_out()
    assert world.instance(build).host == "host-1"
    for key, value, lacking in (
        ("hw_firmware_type", "uefi", "COMPUTE_FIRMWARE_UEFI"),
        ("hw_machine_type", "pc-q35-9.9", "CUSTOM_MACHINE_TYPE_PC_Q35_9_9"),
    ):
        refused = world.build(SHARED, image={"id": "i", "properties": {key: value}})
        world.run_out()
        assert world.ended(refused) is OperationState.FAILED
        message = str((world.operation(refused).error or {})["message"])
        assert f"2 cannot give their guests {lacking}" in message


def test_a_guest_neither_moves_to_nor_is_rebuilt_on_a_host_that_cannot_give_its_hardware() -> None:
    world = World(hosts=2)
    with world.store.begin() as uow:
        host = uow.hosts.lock("host-1")
        assert host is not None
        uow.hosts.save(replace(host, traits=("COMPUTE_NODE",), version=host.version + 1))
    build = world.build(FLAVOR, image=IMAGE, host="host-0")
    plain = world.build(SHARED, host="host-1")
    world.run_out()
    for task in ("live_migrate_instance", "migrate_instance"):
        body = {"instance_id": world.instance(build).id, "host": "host-1"}
        assert "cannot give its guests COMPUTE_GRAPHICS_MODEL_VGA" in error_of(
            world, world.submit(task, body)
        )
        assert world.instance(build).host == "host-0"
    uefi = {"id": "uefi", "properties": {"hw_firmware_type": "uefi"}}
    body = {"instance_id": world.instance(plain).id, "image": uefi}
    rebuilt = error_of(world, world.submit("rebuild_instance", body))
    assert "host-1 cannot give its guests COMPUTE_FIRMWARE_UEFI" in rebuilt


def error_of(world: World, operation_id: str) -> str:
    world.run_out()
    return str(world.operation(operation_id).error)


@pytest.mark.parametrize("by_flavor", [True, False])
def test_hardware_that_contradicts_itself_is_refused_before_any_claim(by_flavor: bool) -> None:
    world = World()
    properties = {"hw_firmware_type": "bios"}
    flavor: dict[str, Any] = dict(SHARED)
    if by_flavor:
        flavor["extra_specs"] = {"os:secure_boot": "required"}
    else:
        properties["os_secure_boot"] = "required"
    refused = world.build(flavor, image={"id": "i", "properties": properties})
    world.run_out()
    assert (world.operation(refused).error or {})["key"] == "hw_firmware_type"
    with world.store.read() as uow:
        assert not uow.instances.where()
