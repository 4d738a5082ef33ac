"""Server groups: together, apart, softly, and by fault domain."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from conductor.placement.local.instance_allocations import transfer_to_migration
from conductor.scheduling.request.group_rules import GroupRule, Member, allows
from conductor.store import Instance, Migration
from models.lifecycle import MigrationKind, MigrationState
from models.messages.internal import Reply
from tests.invariants import assert_invariants
from tests.scheduling.world import World, chosen, flavor, host, pinned, refusal


def world_with(policy: str, hosts: int = 3, **body: object) -> World:
    world = World()
    world.add_hosts(*(host(f"host-{n}") for n in range(hosts)))
    world.define("server_group", "g", policy=policy, **body)
    return world


def member(world: World, **spec: object) -> str:
    (name,) = chosen(world.schedule(world.add_instance(flavor(), group="g", **spec)))
    return name


def test_an_affinity_group_stays_on_the_host_of_its_first_member() -> None:
    world = world_with("affinity")
    assert len({member(world) for _ in range(4)}) == 1


def test_a_full_home_refuses_the_next_member_and_says_where_the_others_failed() -> None:
    world = world_with("affinity", hosts=3)
    for _ in range(2):
        chosen(world.schedule(world.add_instance(pinned(vcpus=4), group="g")))
    line = refusal(world.schedule(world.add_instance(pinned(vcpus=4), group="g")))
    assert line.startswith("3 hosts: 2 are not on the host of its group, 1 lacks free dedicated")


def test_an_anti_affinity_group_never_shares_a_host() -> None:
    world = world_with("anti-affinity", hosts=3)
    assert len({member(world) for _ in range(3)}) == 3
    line = refusal(world.schedule(world.add_instance(flavor(), group="g")))
    assert line == "3 hosts: 3 are on a host that its group closes"


def test_an_anti_affinity_group_may_allow_several_on_a_host() -> None:
    world = world_with("anti-affinity", hosts=2, max_server_per_host=2)
    hosts = [member(world) for _ in range(4)]
    assert sorted(hosts) == ["host-0", "host-0", "host-1", "host-1"]


def test_soft_rules_bend_where_hard_ones_refuse() -> None:
    apart = world_with("soft-anti-affinity", hosts=2)
    hosts = [member(apart) for _ in range(3)]
    assert set(hosts[:2]) == {"host-0", "host-1"}
    together = world_with("soft-affinity", hosts=2)
    assert len({member(together) for _ in range(3)}) == 1


def test_instances_of_one_request_obey_their_group_among_themselves() -> None:
    world = world_with("anti-affinity", hosts=3)
    three = [world.add_instance(flavor(), group="g") for _ in range(3)]
    assert sorted(chosen(world.schedule(*three))) == ["host-0", "host-1", "host-2"]
    assert_invariants(world.store)


def test_a_request_with_one_member_too_many_places_none() -> None:
    world = world_with("anti-affinity", hosts=3)
    four = [world.add_instance(flavor(), group="g") for _ in range(4)]
    line = refusal(world.schedule(*four))
    assert line == "instance 4 of 4: 3 hosts: 3 are on a host that its group closes"
    assert all(world.instance(instance.id).host is None for instance in four)
    assert_invariants(world.store)


def test_the_group_of_an_instance_survives_its_scheduling() -> None:
    world = world_with("anti-affinity")
    instance = world.add_instance(flavor(), group="g")
    world.schedule(instance)
    assert world.instance(instance.id).group == "g"


def test_an_unknown_group_is_refused_by_name() -> None:
    world = World()
    world.add_hosts(host("a"))
    reply = world.schedule(world.add_instance(flavor(), group="none"))
    assert reply.error is not None
    assert (reply.error["code"], reply.error["key"]) == ("group_unknown", "group")


def test_fault_domains_keep_racks_to_themselves() -> None:
    world = world_with("fault-domain", hosts=4, scope="rack")
    for rack in (0, 1):
        hosts = [f"host-{2 * rack}", f"host-{2 * rack + 1}"]
        world.define("aggregate", f"rack-{rack}", hosts=hosts, metadata={"rack": str(rack)})

    def rack_of(domain: int) -> int:
        name = member(world, scheduler_hints={"domain": domain})
        return int(name.removeprefix("host-")) // 2

    first = rack_of(1)
    assert rack_of(2) == 1 - first
    assert rack_of(1) == first
    reply = world.schedule(world.add_instance(flavor(), group="g", scheduler_hints={"domain": 3}))
    assert refusal(reply) == "4 hosts: 4 are on a rack that its group closes"


def test_a_host_without_a_rack_cannot_keep_a_promise_about_racks() -> None:
    world = world_with("affinity", hosts=2, scope="rack")
    world.define("aggregate", "rack-0", hosts=["host-1"], metadata={"rack": "0"})
    assert member(world) == "host-1"


PLACES: Mapping[str, int] = {"a": 0, "b": 0, "c": 1, "d": 2}


@given(
    st.sampled_from(["affinity", "anti-affinity", "fault-domain"]),
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"))),
    st.sampled_from("abcd"),
    st.sampled_from("xyz"),
    st.integers(1, 3),
)
def test_a_rule_allows_exactly_what_its_words_say(
    policy: str, members: list[tuple[str, str]], name: str, domain: str, most: int
) -> None:
    rule = GroupRule(
        "g",
        policy,  # type: ignore[arg-type]  # sampled from the policies
        "rack",
        most,
        tuple(Member(*pair) for pair in members),
        domain,
    )
    same_place = [d for h, d in members if PLACES[h] == PLACES[name]]
    expected = {
        "affinity": not members or (len(same_place) > 0),
        "anti-affinity": len(same_place) < most,
        "fault-domain": all(d == domain for d in same_place),
    }[policy]
    assert allows(rule, name, lambda _, item: PLACES.get(item)) is expected


def move(world: World, instance: Instance, **more: object) -> Reply:
    """Ask for a target for an instance that has a host."""
    before = world.instance(instance.id)
    migration = Migration(
        id=f"move-{instance.id}",
        instance_id=instance.id,
        kind=MigrationKind.MIGRATION,
        state=MigrationState.MIGRATING,
        operation_id="",
        source=before.host or "",
        source_flavor=before.flavor,
        target_flavor=before.flavor,
        source_placement=before.placement,
        created_at=0.0,
        updated_at=0.0,
    )
    with world.store.begin() as uow:
        uow.migrations.add(migration)
        transfer_to_migration(uow, migration)
    message = world.ask(instance, ignored=(migration.source,))
    host_requests = tuple(
        host_request.model_copy(update={"migration_id": migration.id})
        for host_request in message.host_requests
    )
    return world.answer(message.model_copy(update={"host_requests": host_requests}))


def test_a_lone_member_of_an_affinity_group_is_no_company_for_itself() -> None:
    world = world_with("affinity")
    instance = world.add_instance(flavor(), group="g")
    (source,) = chosen(world.schedule(instance))
    (target,) = chosen(move(world, instance))
    assert target != source
    assert_invariants(world.store)


def test_a_member_whose_company_stays_cannot_leave_it() -> None:
    world = world_with("affinity", hosts=2)
    instance, other = (world.add_instance(flavor(), group="g") for _ in range(2))
    world.schedule(instance)
    world.schedule(other)
    assert "not on the host of its group" in refusal(move(world, instance))


def test_a_member_that_moves_keeps_both_ends_closed_until_it_is_done() -> None:
    world = world_with("anti-affinity", hosts=3)
    instance = world.add_instance(flavor(), group="g")
    (source,) = chosen(world.schedule(instance))
    (target,) = chosen(move(world, instance))
    third = member(world)
    assert {source, target, third} == {"host-0", "host-1", "host-2"}
    line = refusal(world.schedule(world.add_instance(flavor(), group="g")))
    assert line == "3 hosts: 3 are on a host that its group closes"


def test_two_members_that_move_at_the_same_time_never_meet() -> None:
    world = world_with("anti-affinity", hosts=4)
    two = [world.add_instance(flavor(), group="g") for _ in range(2)]
    sources = [chosen(world.schedule(instance))[0] for instance in two]
    targets = [chosen(move(world, instance))[0] for instance in two]
    assert len({*sources, *targets}) == 4
    assert_invariants(world.store)
