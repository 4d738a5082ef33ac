"""Which host is chosen, which is ruled out, and what an operator is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from conductor.placement.resources import Ratios
from conductor.scheduling.settings import SchedulingSettings
from models.hardware import Flavor, HostTopology, PagePool
from tests.invariants import assert_invariants
from tests.scheduling.world import World, chosen, flavor, host, pinned, refusal

PACK = SchedulingSettings(strategy="pack")


def test_spreading_takes_the_emptiest_host_and_names_the_next_best() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"), host("c"))
    first = world.build(flavor(vcpus=8))
    assert chosen(first) == ["a"]
    assert first.result["selected"][0]["alternates"] == ["b", "c"]
    assert [chosen(world.build(flavor(vcpus=8)))[0] for _ in range(3)] == ["b", "c", "a"]


def test_packing_fills_a_used_host_before_it_opens_another() -> None:
    world = World(settings=PACK)
    world.add_hosts(host("a"), host("b"))
    hosts = [chosen(world.build(pinned(vcpus=4)))[0] for _ in range(4)]
    assert hosts[0] == hosts[1]
    assert hosts[2] == hosts[3]
    assert len(set(hosts)) == 2
    assert_invariants(world.store)


def test_packing_keeps_large_spaces_whole_for_the_large_sizes_it_has_seen() -> None:
    world = World(settings=PACK)
    world.add_hosts(host("big", dedicated=16, cells=1), host("small", dedicated=4, cells=1))
    world.build(pinned(vcpus=64))
    world.build(pinned(vcpus=16), host="nowhere")
    assert chosen(world.build(pinned(vcpus=2))) == ["small"]
    assert chosen(world.build(pinned(vcpus=16))) == ["big"]


def test_every_host_is_counted_once_and_the_nearest_is_named() -> None:
    world = World()
    world.add_hosts(*(host(f"small-{n}", dedicated=2) for n in range(3)))
    world.add_hosts(host("near", dedicated=12), host("far", dedicated=16))
    world.define("zone", "east", hosts=["near", "small-0", "small-1", "small-2"])
    reply = world.build(pinned(vcpus=16), availability_zone="east")
    assert refusal(reply) == (
        "5 hosts: 3 lack free dedicated CPUs (need 16, best 4 on small-0), "
        "1 is in another zone, "
        "1 lacks free dedicated CPUs in one NUMA cell (need 16, best 12 on near)"
    )
    assert reply.error is not None
    reasons = reply.error["data"]["reasons"]
    assert sum(reason["hosts"] for reason in reasons) == reply.error["data"]["hosts"] == 5


def test_the_disk_of_a_flavor_is_named_as_the_cause() -> None:
    world = World()
    world.add_hosts(host("a", disk_gb=40), host("b", disk_gb=80))
    line = refusal(world.build(flavor(root_gb=100)))
    assert line == "2 hosts: 2 lack free disk (need 100 GiB, best 80 GiB on b)"


def test_no_ratio_makes_a_host_larger_than_it_is_for_one_guest() -> None:
    world = World()
    world.add_hosts(host("a", cells=1, shared=4), host("b", cells=1, shared=6))
    line = refusal(world.build(flavor(vcpus=8)))
    assert line == "2 hosts: 2 are too small in shared CPUs (need 8, best 6 on b)"
    assert chosen(world.build(flavor(vcpus=6))) == ["b"]
    assert chosen(world.build(flavor(vcpus=6))) == ["b"]


@pytest.mark.parametrize("wanted", [flavor(), pinned(), pinned(**{"hw:numa_nodes": "2"})])
@pytest.mark.parametrize("strategy", ["spread", "pack"])
def test_a_fleet_without_hosts_says_so(wanted: Flavor, strategy: Literal["spread", "pack"]) -> None:
    world = World(settings=SchedulingSettings(strategy=strategy))
    assert refusal(world.build(wanted)) == "no host is known"


def test_a_host_without_numa_cells_takes_nothing_that_needs_one() -> None:
    world = World()
    bare = replace(host("a"), topology=HostTopology(()))
    world.add_hosts(bare)
    assert "NUMA cell" in refusal(world.build(pinned()))
    assert chosen(world.build(flavor())) == ["a"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, "1 is disabled"),
        ({"forced_down": True}, "1 is down"),
        ({"degraded": "hardware changed"}, "1 is degraded"),
    ],
)
def test_a_host_out_of_service_is_not_chosen(change: dict[str, object], reason: str) -> None:
    world = World()
    world.add_hosts(replace(host("a"), **change))  # type: ignore[arg-type]  # one field each
    assert refusal(world.build()) == f"1 host: {reason}"


def test_a_host_that_was_never_heard_of_is_down() -> None:
    world = World()
    world.add_hosts(host("a"), beat=False)
    assert refusal(world.build()) == "1 host: 1 is down"


def test_a_named_host_is_the_only_one_even_when_it_is_full() -> None:
    world = World()
    world.add_hosts(host("a", dedicated=2, cells=1), host("b"))
    assert chosen(world.build(pinned(vcpus=2), host="a")) == ["a"]
    line = refusal(world.build(pinned(vcpus=2), host="a"))
    assert line == (
        "2 hosts: 1 is not a, which was asked for, "
        "1 lacks free dedicated CPUs (need 2, best 0 on a)"
    )


def test_what_was_tried_is_left_out_and_alternates_come_first() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"), host("c"), host("d"))
    instance = world.add_instance()
    reply = world.schedule(instance, alternates=("d", "b"), ignored=("a", "d"))
    assert chosen(reply) == ["b"]
    assert "a" not in reply.result["selected"][0]["alternates"]


def test_an_aggregate_with_the_metadata_asked_for_is_found() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    world.define("aggregate", "fast", hosts=["b"], metadata={"disk": "ssd, nvme"})
    asked = flavor(**{"aggregate_instance_extra_specs:disk": "nvme"})
    assert chosen(world.build(asked)) == ["b"]
    other = flavor(**{"aggregate_instance_extra_specs:disk": "tape"})
    assert refusal(world.build(other)) == "2 hosts: 2 are in no aggregate with disk=tape"


@pytest.mark.parametrize(
    "condition", ["s== ssd", "<or> nvme <or> ssd", "<in> ss", "s!= hdd", "<all-in> s d"]
)
def test_aggregates_and_capabilities_are_asked_in_one_language(condition: str) -> None:
    world = World()
    world.add_hosts(host("a"), host("b"), host("c"), host("d"))
    world.define("aggregate", "slow", hosts=["a", "c"], metadata={"disk": "hdd"})
    world.define("aggregate", "fast", hosts=["b"], metadata={"disk": "ssd"})
    asked = flavor(**{"aggregate_instance_extra_specs:disk": condition})
    assert chosen(world.build(asked)) == ["b"]
    line = refusal(world.build(asked, host="d"))
    assert "is in no aggregate with disk" in line


def test_what_no_aggregate_may_say_rules_a_host_out_whatever_another_says() -> None:
    world = World()
    world.add_hosts(host("a"))
    world.define("aggregate", "slow", hosts=["a"], metadata={"disk": "hdd"})
    world.define("aggregate", "fast", hosts=["a"], metadata={"disk": "ssd"})
    asked = flavor(**{"aggregate_instance_extra_specs:disk": "s!= hdd"})
    assert refusal(world.build(asked)).startswith("1 host: ")


def test_the_zone_of_an_instance_follows_its_host() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    world.define("zone", "west", hosts=["b"])
    reply = world.build(availability_zone="west")
    instance = world.instance(reply.result["selected"][0]["instance_id"])
    assert (instance.host, instance.availability_zone) == ("b", "west")


def test_hints_bring_instances_together_and_keep_them_apart() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"), host("c"))
    other = world.build(flavor()).result["selected"][0]
    together = world.build(flavor(), scheduler_hints={"same_host": other["instance_id"]})
    assert chosen(together) == [other["host"]]
    apart = world.build(flavor(), scheduler_hints={"different_host": [other["instance_id"]]})
    assert chosen(apart) != [other["host"]]


def test_a_build_beside_an_instance_that_has_no_host_finds_none_and_says_so() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    homeless = world.add_instance(flavor()).id
    reply = world.build(flavor(), scheduler_hints={"same_host": [homeless]})
    assert reply.error is not None
    assert reply.error["kind"] == "NoValidHost"
    expected = "2 hosts: 2 are not the host of its companions, which have none"
    assert reply.error["message"] == expected


def test_a_hint_that_is_no_instance_id_is_refused_with_its_name() -> None:
    world = World()
    world.add_hosts(host("a"))
    reply = world.build(flavor(), scheduler_hints={"same_host": 7})
    assert reply.error is not None
    assert (reply.error["kind"], reply.error["key"]) == ("Rejected", "scheduler_hints")


def test_shared_cpus_are_over_committed_up_to_the_ratio_and_no_further() -> None:
    world = World()
    world.add_hosts(host("a", cells=1, shared=4, dedicated=0, ratios=Ratios(cpu=2.0)))
    for _ in range(4):
        assert chosen(world.build(flavor(vcpus=2, memory_mib=64))) == ["a"]
    line = refusal(world.build(flavor(vcpus=2, memory_mib=64)))
    assert line == "1 host: 1 lacks free shared CPUs (need 2, best 0 on a)"


def test_pages_of_the_size_asked_for_are_counted() -> None:
    world = World()
    plain = host("a", cells=1)
    (cell,) = plain.topology.cells
    pools = (PagePool(4, 524_288), PagePool(1_048_576, 2))
    paged = replace(plain.topology, cells=(replace(cell, page_pools=pools),))
    world.add_hosts(replace(plain, topology=paged))
    large = flavor(vcpus=1, memory_mib=2048, **{"hw:mem_page_size": "1GB"})
    assert chosen(world.build(large)) == ["a"]
    line = refusal(world.build(large))
    assert line == (
        "1 host: 1 lacks free pages of 1 GiB in one NUMA cell (need 2,048 MiB, best 0 MiB on a)"
    )
    assert_invariants(world.store)


def test_the_decision_is_kept_with_scores_alternates_and_counts() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"), host("c", disk_gb=1))
    selected = world.build(flavor()).result["selected"][0]
    with world.store.read() as uow:
        (decision,) = uow.decisions.where(instance_id=selected["instance_id"])
    assert decision.host == selected["host"]
    assert decision.detail["hosts"] == 3
    assert [name for name, _ in decision.detail["scores"]] == ["a", "b"]
    (check,) = decision.detail["checks"]
    assert (check["check"], check["need"], check["have"]) == ("no_room_disk_gb", 10, 1)
