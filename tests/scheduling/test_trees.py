"""Groups of requests, children of hosts, providers that share: chosen, claimed, moved, freed."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.placement.candidates.candidate_search import headroom_of
from conductor.placement.consistency.allocation_audit import audit, read_books
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import SHARING
from conductor.scheduling.analysis.explanation import history_of, verdicts
from conductor.scheduling.fleet_cache import FleetCache
from conductor.scheduling.request.instance_shape import shape_of
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shared_providers import SharedProviders
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Allocation, Inventory, Provider
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.lifecycle import OperationState
from tests.operations.test_moves import ask, built, error_code
from tests.operations.world import World
from tests.scheduling.world import host

POOL = "99999999-9999-4999-8999-999999999999"


def asking(vcpus: int = 1, root_gb: int = 0, **specs: str) -> dict[str, Any]:
    named = {key.replace("__", ":"): value for key, value in specs.items()}
    return {"vcpus": vcpus, "memory_mb": 512, "root_gb": root_gb, "extra_specs": named}


def card(world: World, host: str, name: str, count: int = 1, *traits: str) -> None:
    """Put a child with cards under a host."""
    root = world.host(host).provider_id
    child = Provider(
        str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        name,
        root,
        root,
        inventories={"CUSTOM_CARD": Inventory(count)},
        traits=frozenset(traits),
    )
    with world.store.begin() as uow:
        uow.providers.add(child)


def shared_disks(world: World, total_gb: int, *hosts: str) -> None:
    """Let hosts without disks of their own share a pool."""
    aggregate = str(uuid.uuid4())
    pool = Provider(
        POOL,
        "pool",
        None,
        POOL,
        inventories={"DISK_GB": Inventory(total_gb)},
        traits=frozenset({SHARING}),
        aggregates=frozenset({aggregate}),
    )
    with world.store.begin() as uow:
        uow.providers.add(pool)
        for name in hosts:
            host = uow.hosts.lock(name)
            assert host is not None
            without = {
                key: inventory for key, inventory in host.inventory.items() if key != "DISK_GB"
            }
            uow.hosts.save(
                replace(
                    host,
                    inventory=without,
                    aggregates=(aggregate,),
                    version=host.version + 1,
                )
            )


def used(world: World, name: str) -> Mapping[str, int]:
    with world.store.read() as uow:
        (found,) = uow.providers.where(name=name)
    return dict(found.used)


def held(world: World, consumer: str) -> dict[str, Mapping[str, int]]:
    with world.store.read() as uow:
        rows = uow.allocations.where(consumer_id=consumer)
    return {row.provider: dict(row.amounts) for row in rows}


def adds_up(world: World) -> None:
    with world.store.read() as uow:
        assert audit(read_books(uow)) == []


def test_a_group_goes_to_the_host_whose_child_has_it_and_is_given_back_with_it() -> None:
    world = World(hosts=3)
    card(world, "host-2", "card-2", 2)
    world.pass_time(5.0)
    instance = built(world, asking(resources1__CUSTOM_CARD="2"))
    assert world.instance_by_id(instance).host == "host-2"
    assert held(world, instance)["card-2"] == {"CUSTOM_CARD": 2}
    assert used(world, "card-2") == {"CUSTOM_CARD": 2}
    with world.store.read() as uow:
        (decision,) = uow.decisions.where(instance_id=instance)
    assert "request group 1 is served by card-2" in history_of(decision.detail, decision.host)
    adds_up(world)
    ask(world, "delete_instance", instance)
    assert used(world, "card-2") == {}
    assert held(world, instance) == {}


def test_what_no_provider_has_is_a_no_that_says_what_is_lacking() -> None:
    world = World(hosts=3)
    card(world, "host-2", "card-2", 1)
    world.pass_time(5.0)
    operation = world.build(asking(resources1__CUSTOM_CARD="2"))
    world.run_out()
    assert error_code(world, operation) == "no_valid_host"
    message = str((world.operation(operation).error or {})["message"])
    assert "CUSTOM_CARD (need 2, best 1 on host-2)" in message
    adds_up(world)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_beside_hosts_is_the_same_however_it_was_charged(seed: int) -> None:
    chance = random.Random(seed)
    hosts = [
        replace(host(f"h{n}"), provider_id=f"p{n}", aggregates=tuple(chance.sample("ab", n % 3)))
        for n in range(6)
    ]
    providers = {
        f"c{n}": Provider(
            f"c{n}", f"c{n}", *(chance.choice([("p1", "p1"), ("p2", "p2"), (None, f"c{n}")])),
            inventories={chance.choice(["CUSTOM_CARD", "DISK_GB"]): Inventory(9, max_unit=7)},
            traits=frozenset(chance.choice([(), (SHARING,)])),
            aggregates=frozenset(chance.choice("ab")),
        )
        for n in range(8)
    }  # fmt: skip
    charged = SharedProviders(providers.values())
    for _ in range(10):
        for name in ("CUSTOM_CARD", "DISK_GB", "VCPU"):
            anew = SharedProviders(providers.values())
            near = {item.name: anew.tree_of(item).providers[1:] for item in hosts}
            most = {
                name_: max((headroom_of(provider, name) for provider in beside), default=0)
                for name_, beside in near.items()
            }
            found = charged.most(hosts, name)
            assert {item.name: found.get(item.name, 0) for item in hosts} == most
            assert charged.offers([name]) == any(
                name in provider.inventories for provider in providers.values()
            )
        chosen = chance.choice(list(providers.values()))
        (name,) = chosen.inventories
        back = chance.random() < 0.3 and chosen.used.get(name, 0) > 1
        used = {name: chosen.used.get(name, 0) + (-2 if back else 2)}
        if chance.random() < 0.3:
            shared = frozenset(chance.choice([(), (SHARING,)]))
            providers[chosen.id] = replace(chosen, used=used, traits=shared)
            gone = chance.choice([None, *providers])
            providers = {key: provider for key, provider in providers.items() if key != gone}
            charged = charged.newer({key: providers.get(key) for key in (chosen.id, gone) if key})
        else:
            providers[chosen.id] = replace(chosen, used=used)
            change = charged.release if back else charged.allocate
            charged = change({chosen.id: {name: 2}})


def test_isolated_groups_need_as_many_providers_and_others_may_share_one() -> None:
    world = World(hosts=2)
    card(world, "host-0", "card-a", 2)
    world.pass_time(5.0)
    two = {"resources1__CUSTOM_CARD": "1", "resources2__CUSTOM_CARD": "1"}
    apart = world.build(asking(**two, group_policy="isolate"))
    world.run_out()
    assert error_code(world, apart) == "no_valid_host"
    assert "no providers for all groups" in str((world.operation(apart).error or {})["message"])
    together = built(world, asking(**two))
    assert held(world, together)["card-a"] == {"CUSTOM_CARD": 2}
    adds_up(world)


def test_every_host_has_a_verdict_about_its_providers_too() -> None:
    world = World(hosts=2)
    card(world, "host-0", "card-a", 2)
    card(world, "host-1", "card-b", 1)
    card(world, "host-1", "card-c", 1)
    world.pass_time(5.0)
    two = {"resources1__CUSTOM_CARD": "1", "resources2__CUSTOM_CARD": "1"}
    request = asking(**two, group_policy="isolate")
    view = FleetCache(SchedulingSettings(refresh_s=0.0))
    with world.store.read() as uow:
        view.refresh(uow)
    flavor = Flavor("f", request["vcpus"], request["memory_mb"], extra_specs=request["extra_specs"])
    spec = RequestSpec("i", shape_of(flavor, Image("img")))
    said = {
        verdict.host: verdict.check for verdict in verdicts(spec, view.fleet, SchedulingSettings())
    }
    assert said == {"host-0": "no_providers", "host-1": "possible"}


def test_traits_of_a_group_are_asked_of_its_provider() -> None:
    world = World(hosts=3)
    card(world, "host-0", "slow", 1)
    card(world, "host-1", "fast", 1, "CUSTOM_FAST")
    world.pass_time(5.0)
    request = asking(resources1__CUSTOM_CARD="1", trait1__CUSTOM_FAST="required")
    assert world.instance_by_id(built(world, request)).host == "host-1"
    none_left = world.build(request)
    world.run_out()
    assert error_code(world, none_left) == "no_valid_host"


@pytest.mark.parametrize(
    ("specs", "code", "key"),
    [
        ({"resources1__CARD": "1"}, "resources_invalid", "resources1:CARD"),
        ({"resources1__CUSTOM_CARD": "x"}, "resources_invalid", "resources1:CUSTOM_CARD"),
        ({"group_policy": "maybe"}, "group_policy_invalid", "group_policy"),
        (
            {"resources1__CUSTOM_CARD": "1", "trait1__CUSTOM_FAST": "often"},
            "trait_invalid",
            "trait1:CUSTOM_FAST",
        ),
    ],
)
def test_a_group_that_makes_no_sense_is_refused_by_name(
    specs: dict[str, str], code: str, key: str
) -> None:
    world = World(hosts=1)
    operation = world.build(asking(**specs))
    world.run_out()
    error = world.operation(operation).error or {}
    assert error["code"] == code
    assert key in str(error["message"])


def test_several_builds_of_one_request_take_one_card_each() -> None:
    world = World(hosts=3)
    for number in range(3):
        card(world, f"host-{number}", f"card-{number}", 1)
    world.pass_time(5.0)
    operation = world.build(asking(resources1__CUSTOM_CARD="1"), count=3)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert [used(world, f"card-{n}") for n in range(3)] == [{"CUSTOM_CARD": 1}] * 3
    adds_up(world)


def test_a_move_takes_a_card_there_and_gives_the_one_here_back_when_confirmed() -> None:
    world = World(hosts=2)
    card(world, "host-0", "card-0", 1)
    card(world, "host-1", "card-1", 1)
    world.pass_time(5.0)
    instance = built(world, asking(resources1__CUSTOM_CARD="1"), host="host-0")
    for verb, left in (("revert_resize", "card-0"), ("confirm_resize", "card-1")):
        ask(world, "migrate_instance", instance)
        assert used(world, "card-0") == used(world, "card-1") == {"CUSTOM_CARD": 1}
        adds_up(world)
        ask(world, verb, instance)
        assert set(held(world, instance)) - {"host-0", "host-1"} == {left}
        adds_up(world)


@pytest.mark.parametrize("verb", ["confirm_resize", "revert_resize"])
def test_a_disk_on_shared_storage_is_charged_once_while_its_instance_moves(verb: str) -> None:
    world = World(hosts=2)
    shared_disks(world, 15, "host-0", "host-1")
    world.pass_time(5.0)
    instance = built(world, asking(root_gb=10), host="host-0")
    assert "DISK_GB" not in held(world, instance)["host-0"]
    assert used(world, "pool") == {"DISK_GB": 10}
    moved = ask(world, "migrate_instance", instance)  # 20 GiB would not be there
    assert world.ended(moved) is OperationState.SUCCEEDED
    assert used(world, "pool") == {"DISK_GB": 10}
    adds_up(world)
    ask(world, verb, instance)
    assert used(world, "pool") == {"DISK_GB": 10}
    adds_up(world)
    ask(world, "delete_instance", instance)
    assert used(world, "pool") == {}


@pytest.mark.parametrize(("verb", "left"), [("confirm_resize", 14), ("revert_resize", 10)])
def test_a_larger_disk_on_shared_storage_is_charged_at_once_and_only_the_difference(
    verb: str, left: int
) -> None:
    world = World(hosts=2)
    shared_disks(world, 15, "host-0", "host-1")
    world.pass_time(5.0)
    instance = built(world, asking(root_gb=10))
    ask(world, "resize_instance", instance, flavor=asking(root_gb=14))
    assert used(world, "pool") == {"DISK_GB": 14}
    adds_up(world)
    ask(world, verb, instance)
    assert used(world, "pool") == {"DISK_GB": left}
    adds_up(world)


def test_storage_that_is_full_is_said_and_nothing_is_claimed() -> None:
    world = World(hosts=2)
    shared_disks(world, 15, "host-0", "host-1")
    world.pass_time(5.0)
    built(world, asking(root_gb=10))
    refused = world.build(asking(root_gb=10))
    world.run_out()
    assert error_code(world, refused) == "no_valid_host"
    message = str((world.operation(refused).error or {})["message"])
    assert "disk (need 10 GiB, best 5 GiB" in message
    adds_up(world)


def test_a_provider_that_was_taken_meanwhile_makes_the_decision_anew() -> None:
    world = World(hosts=2)
    card(world, "host-0", "card-0", 1)
    card(world, "host-1", "card-1", 1)
    world.pass_time(5.0)
    stranger = str(uuid.uuid4())

    def taken() -> None:
        world.store.after_commit = lambda: None
        with world.store.begin() as uow:
            (found,) = uow.providers.where(name="card-0")
            uow.allocations.add(Allocation(stranger, "card-0", {"CUSTOM_CARD": 1}, "backup"))
            uow.providers.save(
                replace(found, used={"CUSTOM_CARD": 1}, generation=found.generation + 1)
            )

    operation = world.build(asking(resources1__CUSTOM_CARD="1"))
    world.deliver("conductor")
    world.store.after_commit = taken
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.instance(operation).host == "host-1"
    adds_up(world)


def test_what_is_held_is_summed_by_project_and_user() -> None:
    world = World(hosts=1)
    card(world, "host-0", "card-0", 2)
    world.pass_time(5.0)
    built(world, asking(resources1__CUSTOM_CARD="2"))
    with world.store.read() as uow:
        placement = StorePlacement(uow)
        held = {"VCPU": 1, "MEMORY_MB": 512, "CUSTOM_CARD": 2}
        assert dict(placement.usages("demo", "ann")) == held
        assert dict(placement.usages("demo")) == held
        assert dict(placement.usages("demo", "bob")) == {}


def test_a_host_that_goes_takes_its_children_along_unless_they_are_in_use() -> None:
    world = World(hosts=2)
    card(world, "host-0", "card-0", 1)
    world.pass_time(5.0)
    instance = built(world, asking(resources1__CUSTOM_CARD="1"))
    with pytest.raises(Rejected), world.store.begin() as uow:
        host_administration.remove(uow, "host-0")
    ask(world, "delete_instance", instance)
    with world.store.begin() as uow:
        host_administration.remove(uow, "host-0")
        assert uow.providers.where() == []


def test_a_host_that_is_called_like_a_provider_is_not_taken_in() -> None:
    world = World(hosts=2)
    with world.store.begin() as uow:
        known = uow.hosts.get("host-1")
        assert known is not None
        host_administration.remove(uow, "host-1")
    card(world, "host-0", "host-1", 1)
    world.restart_host("host-1")
    with pytest.raises(Rejected) as refused:
        world.settle()
    assert refused.value.code == "provider_name_taken"
