"""What an audit finds when allocations, use and instances disagree, and that healing is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from conductor.placement.consistency.allocation_audit import audit, read_books
from conductor.placement.consistency.heal import heal_consumer, heal_provider
from conductor.store import Allocation, Inventory, Provider, UnitOfWork
from models.errors import Rejected
from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, SHARED, World

STRANGER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def world() -> World:
    """Two instances on two of three hosts."""
    world = World(hosts=3)
    for flavor, host in ((PINNED, "host-0"), (SHARED, "host-1")):
        operation = world.build(flavor, host=host)
        world.run_out()
        assert world.ended(operation) is OperationState.SUCCEEDED
    return world


def findings(world: World) -> list[tuple[str, str]]:
    with world.store.read() as uow:
        return [(finding.code, finding.provider) for finding in audit(read_books(uow))]


def instance_on(world: World, host: str) -> str:
    with world.store.read() as uow:
        return uow.instances.where(host=host)[0].id


def heal_all(world: World, *, force: bool = False) -> None:
    with world.store.read() as uow:
        found = audit(read_books(uow))
    for item in sorted(found, key=lambda finding: finding.consumer_id is None):
        with world.store.begin() as uow:
            if item.consumer_id is not None:
                heal_consumer(uow, item.consumer_id, force=force)
            elif item.healable:
                heal_provider(uow, item.provider, force=force)


def lost(uow: UnitOfWork) -> None:
    """The allocation is gone and the use is noted as if it never had been."""
    held = uow.allocations.where(provider="host-0")[0]
    uow.allocations.drop(held.consumer_id, "host-0")
    host = uow.hosts.get("host-0")
    assert host is not None
    empty = uow.hosts.get("host-2")
    assert empty is not None
    cleared = replace(host, topology=empty.topology, used={}, instances=0)
    uow.hosts.save(replace(cleared, version=host.version + 1))


def orphaned(uow: UnitOfWork) -> None:
    uow.allocations.add(Allocation(STRANGER, "host-2", {"VCPU": 1, "MEMORY_MB": 64}))
    host = uow.hosts.get("host-2")
    assert host is not None
    used = {"VCPU": 1, "MEMORY_MB": 64}
    uow.hosts.save(replace(host, used=used, instances=1, version=host.version + 1))


def doubled(uow: UnitOfWork) -> None:
    """An instance holds something on a host where it is not: what a lost cleanup leaves."""
    held = uow.allocations.where(provider="host-0")[0]
    uow.allocations.add(replace(held, provider="host-2"))


def too_much(uow: UnitOfWork) -> None:
    held = uow.allocations.where(provider="host-1")[0]
    uow.allocations.save(replace(held, amounts={**held.amounts, "VCPU": 3}))


def miscounted(uow: UnitOfWork) -> None:
    host = uow.hosts.get("host-1")
    assert host is not None
    uow.hosts.save(replace(host, used={"VCPU": 2}, instances=4, version=host.version + 1))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lost, {("missing", "host-0"), ("use", "host-0")}),
        (orphaned, {("orphan", "host-2")}),
        (doubled, {("elsewhere", "host-2"), ("use", "host-2")}),
        (too_much, {("amounts", "host-1"), ("use", "host-1")}),
        (miscounted, {("use", "host-1")}),
    ],
)
def test_what_is_wrong_is_found_healed_exactly_and_only_once(
    world: World, spoil: Callable[[UnitOfWork], None], expected: set[tuple[str, str]]
) -> None:
    before = {name: replace(world.host(name), version=0, updated_at=0.0) for name in world.hosts}
    assert findings(world) == []
    with world.store.begin() as uow:
        spoil(uow)
    assert set(findings(world)) == expected
    heal_all(world)
    assert findings(world) == []
    after = {name: replace(world.host(name), version=0, updated_at=0.0) for name in world.hosts}
    assert after == before
    check_at_rest(world)


def test_healing_what_is_well_changes_nothing(world: World) -> None:
    versions = {name: world.host(name).version for name in world.hosts}
    with world.store.begin() as uow:
        for name in ("host-0", "host-1"):
            assert heal_consumer(uow, uow.instances.where(host=name)[0].id) == []
            assert not heal_provider(uow, name)
    assert {name: world.host(name).version for name in world.hosts} == versions


def test_a_move_in_flight_is_no_finding_and_healing_it_is_refused_unless_forced(
    world: World,
) -> None:
    instance_id = instance_on(world, "host-0")
    world.submit("migrate_instance", {"instance_id": instance_id})
    while queues := world.waiting_queues():
        world.deliver(queues[0])
        assert findings(world) == []
    with world.store.begin() as uow, pytest.raises(Rejected) as refused:
        heal_consumer(uow, instance_id)
    assert refused.value.code == "move_in_flight"
    with world.store.begin() as uow:
        held = uow.allocations.where(consumer_id=instance_id)[0]
        uow.allocations.drop(instance_id, held.provider)
    assert {code for code, _ in findings(world)} == {"missing", "use"}
    heal_all(world, force=True)
    assert findings(world) == []


def test_a_host_with_less_than_is_in_use_is_over_committed_and_nothing_to_heal(
    world: World,
) -> None:
    with world.store.begin() as uow:
        host = uow.hosts.lock("host-0")
        assert host is not None
        less = {**host.inventory, "PCPU": Inventory(1)}
        uow.hosts.save(replace(host, inventory=less, version=host.version + 1))
    assert findings(world) == [("over_committed", "host-0")]
    heal_all(world)
    assert findings(world) == [("over_committed", "host-0")]


def test_who_is_no_instance_and_no_move_is_nobody_that_an_audit_may_free(world: World) -> None:
    with world.store.begin() as uow:
        uow.allocations.add(Allocation(STRANGER, "host-2", {"DISK_GB": 1}, "backup"))
        host = uow.hosts.get("host-2")
        assert host is not None
        uow.hosts.save(replace(host, used={"DISK_GB": 1}, version=host.version + 1))
    assert findings(world) == []


def test_what_the_gone_hold_of_other_providers_is_given_back_too(world: World) -> None:
    card = Provider(
        "22222222-2222-4222-8222-222222222222",
        "host-2-card",
        parent_id=world.host("host-2").provider_id,
        root_id=world.host("host-2").provider_id,
        inventories={"CUSTOM_CARD": Inventory(2)},
        used={"CUSTOM_CARD": 1},
    )
    with world.store.begin() as uow:
        uow.providers.add(card)
        uow.allocations.add(Allocation(STRANGER, card.name, {"CUSTOM_CARD": 1}))
    assert findings(world) == [("orphan", "host-2-card")]
    heal_all(world)
    assert findings(world) == []
    with world.store.read() as uow:
        healed = uow.providers.get(card.id)
    assert healed is not None
    assert dict(healed.used) == {}
    assert healed.generation == 1
