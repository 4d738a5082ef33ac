"""An empty, wrong or older database is told from the one that hosts obey, and obeyed by none."""

from __future__ import annotations

import pytest

from conductor.hosts.database_trust import trust_database
from conductor.store import GENERATION_S, identity_of
from models.errors import Rejected
from models.lifecycle import InstanceState
from tests.operations.copies import copied, restore
from tests.operations.world import SHARED, World


def settled_world() -> tuple[World, str]:
    """A world with one guest on host-0, whose hosts have heard of the database."""
    world = World(hosts=2)
    world.all_hear = False
    operation = world.build(SHARED, host="host-0")
    world.run_out()
    go_on(world)
    return world, operation


def go_on(world: World, rounds: int = 4) -> None:
    """Let heartbeats and canaries go to and fro."""
    for _ in range(rounds):
        world.pass_time(21.0)
        world.settle()


def test_a_database_counts_its_generations_while_a_conductor_runs() -> None:
    world, _ = settled_world()
    with world.store.read() as uow:
        before = identity_of(uow)
    world.pass_time(GENERATION_S + 1)
    world.pass_time(1.0)
    with world.store.read() as uow:
        after = identity_of(uow)
    assert (after.id, after.generation) == (before.id, before.generation + 1)


def test_hosts_that_know_the_database_distrust_an_empty_one() -> None:
    world, _ = settled_world()
    restore(world, {})
    go_on(world)
    for name in world.hosts:
        assert (world.host(name).degraded or "").startswith("distrusts this database")
    operation = world.build(SHARED)
    world.run_out()
    assert world.instance(operation).state is InstanceState.ERROR
    assert len(world.guests()) == 1


def test_a_host_that_registers_with_another_database_is_closed_from_the_start() -> None:
    world, _ = settled_world()
    restore(world, {})
    for name in world.hosts:
        world.kill_host(name)
        world.restart_host(name)
    world.settle()
    assert all((world.host(name).degraded or "").startswith("distrusts") for name in world.hosts)


def test_hosts_that_have_seen_more_of_a_database_distrust_an_older_copy_of_it() -> None:
    world, operation = settled_world()
    copy = copied(world.store)
    for _ in range(3):
        world.pass_time(GENERATION_S + 1)
        world.settle()
    restore(world, copy)
    go_on(world)
    reason = world.host("host-0").degraded or ""
    assert reason.startswith("distrusts this database")
    assert "an older copy was restored" in reason
    world.submit("delete_instance", {"instance_id": world.instance(operation).id})
    world.run_out()
    assert len(world.guests()) == 1


def test_the_same_database_after_a_restart_of_everything_is_trusted() -> None:
    world, operation = settled_world()
    restore(world, copied(world.store))
    for name in world.hosts:
        world.kill_host(name)
        world.restart_host(name)
    go_on(world)
    world.submit("delete_instance", {"instance_id": world.instance(operation).id})
    world.run_out()
    assert world.guests() == {}
    assert world.host("host-0").degraded is None


def test_an_operator_can_have_hosts_obey_an_empty_database() -> None:
    world, _ = settled_world()
    restore(world, {})
    go_on(world)
    with world.store.begin() as uow:
        assert trust_database(uow, ["host-1"]) == ["host-1"]
    go_on(world)
    assert world.host("host-1").degraded is None
    assert world.host("host-0").degraded is not None
    operation = world.build(SHARED)
    world.run_out()
    assert world.instance(operation).host == "host-1"


def test_an_operator_can_have_all_hosts_obey_an_older_copy_under_a_new_id() -> None:
    world, operation = settled_world()
    copy = copied(world.store)
    lost = world.build(SHARED, host="host-1")
    world.run_out()
    lost_id = world.instance(lost).id
    for _ in range(3):
        world.pass_time(GENERATION_S + 1)
        world.settle()
    restore(world, copy)
    go_on(world)
    with world.store.begin() as uow:
        before = identity_of(uow).id
        assert trust_database(uow, None) == ["host-0", "host-1"]
        assert identity_of(uow).id != before
    go_on(world)
    assert all(world.host(name).degraded is None for name in world.hosts)
    world.submit("delete_instance", {"instance_id": world.instance(operation).id})
    world.run_out()
    # What the copy knows is obeyed; the guest of the time that is lost is left alone.
    assert world.guests() == {lost_id: "host-1"}


def test_an_older_copy_concerns_every_host() -> None:
    world, _ = settled_world()
    copy = copied(world.store)
    for _ in range(3):
        world.pass_time(GENERATION_S + 1)
        world.settle()
    restore(world, copy)
    go_on(world)
    with world.store.begin() as uow, pytest.raises(Rejected, match="--all"):
        trust_database(uow, ["host-0"])


def test_a_host_that_obeys_the_database_needs_no_decision() -> None:
    world, _ = settled_world()
    with world.store.begin() as uow:
        assert trust_database(uow, None) == []
        with pytest.raises(Rejected, match="obeys this database"):
            trust_database(uow, ["host-0"])
        with pytest.raises(Rejected, match="no such host"):
            trust_database(uow, ["nobody"])
