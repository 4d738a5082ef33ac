"""What a scheduler sees of the fleet on every adapter: what came, changed, went, fell silent."""

from __future__ import annotations

from dataclasses import replace

from conductor.placement.local.instance_allocations import release_instance
from conductor.scheduling.fleet_cache import FleetCache
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Heartbeat, Store
from tests.contracts.store.conftest import Clock, Opener
from tests.scheduling.world import World, chosen, flavor, host, pinned, refusal

RARELY = SchedulingSettings(refresh_s=3600)
ALWAYS = SchedulingSettings(refresh_s=0)


def seen(view: FleetCache, store: Store) -> dict[str, tuple[int, bool]]:
    """Look, and return every host's version and whether it is up."""
    with store.read() as uow:
        view.refresh(uow)
    fleet = view.fleet
    return {item.name: (item.version, bool(fleet.up[row])) for row, item in enumerate(fleet.hosts)}


def test_a_view_follows_hosts_that_come_change_and_go(opener: Opener) -> None:
    world, reader, view = World(opener()), opener(), FleetCache(ALWAYS)
    assert seen(view, reader) == {}
    world.add_hosts(host("a"), host("b"))
    assert seen(view, reader) == {"a": (1, True), "b": (1, True)}
    world.build(flavor(), host="b")
    assert seen(view, reader)["b"] == (2, True)
    world.add_hosts(host("c"), beat=False)
    assert seen(view, reader)["c"] == (1, False)
    with world.store.begin() as uow:
        uow.hosts.drop("a")
        uow.hosts.add(host("d"))
        uow.heartbeats.put(Heartbeat("d", "compute", uow.now))
    assert seen(view, reader) == {"b": (2, True), "c": (1, False), "d": (1, True)}


def test_a_view_hears_who_falls_silent_and_who_is_back(opener: Opener, clock: Clock) -> None:
    world, reader, view = World(opener()), opener(), FleetCache(ALWAYS)
    world.add_hosts(host("a"), host("b"))
    assert seen(view, reader) == {"a": (1, True), "b": (1, True)}
    clock.now += ALWAYS.down_after_s + 1
    with world.store.begin() as uow:
        uow.heartbeats.put(Heartbeat("b", "compute", uow.now))
    assert seen(view, reader) == {"a": (1, False), "b": (1, True)}
    with world.store.begin() as uow:
        uow.heartbeats.put(Heartbeat("a", "compute", uow.now))
        uow.hosts.save(replace(world.host("b"), forced_down=True, version=2))
    assert seen(view, reader) == {"a": (1, True), "b": (2, True)}
    assert refusal(world.build(host="b")).endswith("1 is down")


def test_nothing_new_is_no_new_revision(opener: Opener) -> None:
    world, reader, view = World(opener()), opener(), FleetCache(ALWAYS)
    world.add_hosts(host("a"), host("b"), beat=False)
    seen(view, reader)
    before = view.revision
    seen(view, reader)
    assert view.revision == before
    world.define("zone", "east", hosts=["a"])
    seen(view, reader)
    assert view.revision > before


def test_an_old_view_gives_no_no_for_a_host_that_came_since(opener: Opener) -> None:
    world = World(opener(), RARELY)
    world.add_hosts(host("a", dedicated=1))
    chosen(world.build(flavor()))
    World(opener(), RARELY).add_hosts(host("b", dedicated=16))
    assert chosen(world.build(pinned(vcpus=16))) == ["b"]


def test_an_old_view_gives_no_no_for_what_was_given_back(opener: Opener) -> None:
    world = World(opener(), RARELY)
    world.add_hosts(host("a", cells=1))
    first = world.add_instance(pinned(vcpus=4))
    chosen(world.schedule(first))
    with opener().begin() as uow:
        (held,) = uow.instances.lock_many([first.id]).values()
        uow.instances.save(release_instance(uow, held))
    assert chosen(world.build(pinned(vcpus=4))) == ["a"]


def test_an_old_view_gives_no_no_for_a_host_that_was_silent(opener: Opener) -> None:
    world = World(opener(), RARELY)
    world.add_hosts(host("a"), beat=False)
    assert refusal(world.build()) == "1 host: 1 is down"
    with opener().begin() as uow:
        uow.heartbeats.put(Heartbeat("a", "compute", uow.now))
    assert chosen(world.build()) == ["a"]
