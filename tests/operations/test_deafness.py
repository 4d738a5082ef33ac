"""While nobody listens to hosts, their silence says nothing: not that they are dead."""

from __future__ import annotations

from models.lifecycle import InstanceState, OperationState
from models.messages.internal import CONDUCTOR, REPORTS, SCHEDULER
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, World


def dispatched(world: World) -> str:
    """Return a build whose host has spawned the guest, and whose answer lies unread."""
    build = world.build(PINNED)
    while not world.guests():
        for queue in (CONDUCTOR, SCHEDULER, *sorted(world.bus.depths())):
            if queue != REPORTS or not world.child(build).waiting:
                world.deliver(queue)
    assert world.bus.depths()[REPORTS]
    return build


def be_deaf(world: World, seconds: int, *, ticking: bool) -> None:
    """Let hosts say that they live, every ten seconds, and nobody read it."""
    for _ in range(0, seconds, 10):
        world.now += 10
        world.beat()
        if ticking:
            world.service.tick()


def spawned_once(world: World, build: str) -> None:
    assert world.ended(build) is OperationState.SUCCEEDED
    instance = world.instance(build)
    assert instance.state is InstanceState.ACTIVE
    effects = [host.hypervisor.effects(instance.id, "spawn") for host in world.hosts.values()]
    assert sum(effects) == 1
    check_at_rest(world)


def test_hosts_outlive_conductors_that_were_away_longer_than_a_host_may_be_silent() -> None:
    world = World()
    world.pass_time(5.0)
    build = dispatched(world)
    be_deaf(world, 100, ticking=False)
    world.restart_conductor()
    world.service.tick()  # before a single report has been read
    world.run_out()
    spawned_once(world, build)


def test_hosts_outlive_a_broker_that_brought_nothing_for_longer_than_that() -> None:
    world = World()
    world.pass_time(5.0)
    build = dispatched(world)
    be_deaf(world, 100, ticking=True)
    world.run_out()
    spawned_once(world, build)


def test_a_build_after_an_outage_finds_hosts_before_they_are_heard_again() -> None:
    world = World()
    world.pass_time(5.0)
    world.settle()
    be_deaf(world, 100, ticking=False)
    world.restart_conductor()
    build = world.build(PINNED)
    for queue in (CONDUCTOR, SCHEDULER):
        world.deliver(queue)
    world.run_out()
    spawned_once(world, build)


def test_a_host_that_died_during_the_outage_is_found_out_after_it() -> None:
    world = World()
    world.pass_time(5.0)
    build = dispatched(world)
    host = world.instance(build).host or ""
    world.kill_host(host)
    world.bus.drop(REPORTS)
    be_deaf(world, 100, ticking=False)
    world.restart_conductor()
    world.run_out()
    assert world.ended(build) is OperationState.SUCCEEDED
    assert world.instance(build).host != host
