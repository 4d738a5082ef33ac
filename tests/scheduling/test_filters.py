"""What operators say about hosts, flavors and images, and whom it leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.placement.resources import Ratios, inventory_of
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Host
from models.hardware import Image, PciPool
from models.messages.internal import Reservation
from tests.scheduling.world import World, chosen, flavor, host, operation_that_asks, pinned, refusal

NEVER_OLD = SchedulingSettings(refresh_s=0)


def with_devices(name: str, *pools: PciPool) -> Host:
    plain = host(name)
    topology = replace(plain.topology, pci_pools=pools)
    return replace(
        plain, topology=topology, inventory=inventory_of(topology, 1000, Reservation(), Ratios())
    )


def gpus(count: int, numa_node: int = 0) -> PciPool:
    return PciPool(numa_node, count, "10de", "1eb8", {"alias": "gpu"})


def test_traits_that_the_flavor_requires_and_forbids_are_heeded() -> None:
    world = World()
    world.add_hosts(
        host("a"),
        replace(host("b"), traits=("CUSTOM_FAST", "CUSTOM_OLD")),
        replace(host("c"), traits=("CUSTOM_FAST",)),
    )
    wanted = flavor(**{"trait:CUSTOM_FAST": "required", "trait1:CUSTOM_OLD": "forbidden"})
    reply = world.build(wanted)
    assert (chosen(reply), reply.result["selected"][0]["alternates"]) == (["c"], [])
    line = refusal(world.build(wanted, host="b"))
    assert line == "3 hosts: 2 are not b, which was asked for, 1 has the forbidden trait CUSTOM_OLD"


def test_traits_that_the_image_requires_are_heeded() -> None:
    world = World()
    world.add_hosts(host("a"), replace(host("b"), traits=("CUSTOM_FAST", "CUSTOM_NEW")))
    image = Image("i", properties={"trait:CUSTOM_FAST": "required"})
    assert chosen(world.schedule(world.add_instance(image=image))) == ["b"]
    listed = Image("j", properties={"traits_required": ["CUSTOM_NEW"]})
    assert chosen(world.schedule(world.add_instance(image=listed))) == ["b"]


@pytest.mark.parametrize("value", ["maybe", ""])
def test_a_trait_is_required_or_forbidden_and_nothing_else(value: str) -> None:
    world = World()
    world.add_hosts(host("a"))
    reply = world.build(flavor(**{"trait:CUSTOM_FAST": value}))
    assert reply.error is not None
    assert reply.error["code"] == "trait_invalid"


def test_an_image_cannot_require_what_the_flavor_forbids() -> None:
    world = World()
    world.add_hosts(replace(host("a"), traits=("CUSTOM_FAST",)))
    image = Image("i", properties={"trait:CUSTOM_FAST": "required"})
    wanted = flavor(**{"trait:CUSTOM_FAST": "forbidden"})
    reply = world.schedule(world.add_instance(wanted, image=image))
    assert reply.error is not None
    assert reply.error["code"] == "traits_contradict"


def test_threads_are_a_trait_that_the_hardware_has_by_itself() -> None:
    plain = host("smt")
    cells = tuple(
        replace(cell, siblings=(0b11 << 8 * cell.id + 4, 0b11 << 8 * cell.id + 6))
        for cell in plain.topology.cells
    )
    world = World()
    world.add_hosts(host("a"), replace(plain, topology=replace(plain.topology, cells=cells)))
    image = Image("i", properties={"traits_required": ["HW_CPU_HYPERTHREADING"]})
    assert chosen(world.schedule(world.add_instance(pinned(), image=image))) == ["smt"]


def test_an_architecture_rules_out_only_hosts_that_say_another() -> None:
    world = World()
    world.add_hosts(replace(host("arm"), traits=("HW_ARCH_AARCH64",)), host("silent"))
    image = Image("i", properties={"hw_architecture": "x86_64"})
    assert chosen(world.schedule(world.add_instance(image=image))) == ["silent"]
    line = refusal(world.schedule(world.add_instance(image=image, host="arm")))
    assert line.endswith("1 is of another architecture")


@pytest.mark.parametrize(
    "value", ["libvirt", "s== libvirt", "<or> qemu <or> libvirt", "<in> virt", "s!= simulated"]
)
def test_capabilities_are_compared_with_what_the_host_is(value: str) -> None:
    world = World()
    world.add_hosts(replace(host("a"), hypervisor="simulated"))
    world.add_hosts(replace(host("b"), hypervisor="libvirt"))
    assert chosen(world.build(flavor(**{"capabilities:hypervisor_type": value}))) == ["b"]


def test_a_capability_that_nobody_knows_is_nobodys() -> None:
    world = World()
    world.add_hosts(host("a"))
    line = refusal(world.build(flavor(**{"capabilities:colour": "red"})))
    assert line == "1 host: 1 has no colour of red"


def test_hosts_set_apart_for_images_take_only_those_and_those_go_only_there() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    world.define("aggregate", "vault", hosts=["b"], metadata={"isolated_images": "secret, other"})
    secret, plain = Image("secret"), Image("plain")
    assert chosen(world.schedule(world.add_instance(image=secret))) == ["b"]
    assert [chosen(world.schedule(world.add_instance(image=plain))) for _ in range(2)] == [
        ["a"]
    ] * 2
    line = refusal(world.schedule(world.add_instance(image=secret, host="a")))
    assert "1 is not set apart for its image" in line


def test_hosts_set_apart_for_projects_take_no_others() -> None:
    world = World(settings=NEVER_OLD)
    world.add_hosts(host("a"), host("b"))
    world.define("aggregate", "theirs", hosts=["b"], metadata={"filter_tenant_id": "p-2,p-3"})
    assert chosen(world.build()) == chosen(world.build()) == ["a"]
    world.define("aggregate", "ours", hosts=["b"], metadata={"filter_tenant_id": "project"})
    assert chosen(world.build()) == ["b"]


def test_an_aggregate_limits_the_instances_of_its_hosts() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    world.define("aggregate", "small", hosts=["a"], metadata={"max_instances_per_host": "1"})
    hosts = [chosen(world.build(flavor(vcpus=1)))[0] for _ in range(4)]
    assert hosts == ["a", "b", "b", "b"]
    assert refusal(world.build(host="a")).endswith("1 has 1 instances already")


def test_an_aggregate_limits_the_work_under_way_on_its_hosts() -> None:
    world = World(settings=NEVER_OLD)
    world.add_hosts(host("a"), host("b", shared=3))
    world.define("aggregate", "slow", hosts=["a"], metadata={"max_io_ops_per_host": "2"})
    with world.store.begin() as uow:
        for number in range(2):
            waiting = operation_that_asks(f"work-{number}")
            uow.operations.add(replace(waiting, waiting_on="compute:a"))
    assert chosen(world.build()) == ["b"]
    with world.store.begin() as uow:
        uow.operations.drop("work-0")
    assert chosen(world.build()) == ["a"]


def test_devices_are_counted_and_never_given_twice() -> None:
    world = World()
    world.add_hosts(with_devices("a", gpus(1), gpus(1, 1)), host("b"))
    wanted = flavor(**{"pci_passthrough:alias": "gpu:1"})
    assert [chosen(world.build(wanted)) for _ in range(2)] == [["a"], ["a"]]
    line = refusal(world.build(wanted))
    assert line == "2 hosts: 2 lack free CUSTOM_PCI_GPU (need 1, best 0 on a)"


def test_devices_are_asked_of_the_fitter_as_near_as_the_flavor_says() -> None:
    world = World()
    world.add_hosts(with_devices("a", gpus(2, 0), gpus(0, 1)))
    near = {"hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "required"}
    wanted = flavor(**near, **{"pci_passthrough:alias": "gpu:1"})
    instance = world.add_instance(wanted)
    chosen(world.schedule(instance))
    placement = world.instance(instance.id).placement
    assert placement is not None
    assert placement.cells[0].host_cell == 0


@pytest.mark.parametrize("value", ["gpu", "gpu:0", "gpu:x", "gpu:999", ":1", "gpu:1;nic:1"])
def test_a_malformed_device_request_is_refused(value: str) -> None:
    world = World()
    world.add_hosts(host("a"))
    reply = world.build(flavor(**{"pci_passthrough:alias": value}))
    assert reply.error is not None
    assert reply.error["code"] == "pci_alias_invalid"


def test_who_wants_no_device_leaves_hosts_with_devices_alone() -> None:
    world = World()
    world.add_hosts(with_devices("a", gpus(2)), host("b", shared=2))
    assert chosen(world.build()) == ["b"]
