"""Images come to a host before guests need them, whole or not at all."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from models.errors import Unreachable
from models.ids import InstanceId
from models.messages.guests.image_files import ImageFile
from tests.workers.world import HARDWARE, PROMPT, World, instruction, spec
from workers.hypervisor.fault_injection import Call, FaultProfile, FaultRates, InjectedFault, seeded
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.settings import DAY_S, WorkerSettings

OWNER = InstanceId(str(uuid.uuid5(uuid.NAMESPACE_DNS, "host-1")))


def told(world: World, fence: int, *images: str) -> None:
    agent = world.agent()
    agent.receive(
        instruction("cache_images", fence, OWNER, {"images": [{"id": image} for image in images]})
    )
    agent.kill()


def damaged(*calls: int) -> World:
    return World(
        injected_faults=lambda call: InjectedFault(
            ending="corrupt" if call.nth in calls else "done"
        )
    )


def test_images_are_added_to_those_that_are_there_each_downloaded_once() -> None:
    world = World()
    told(world, 1, "a", "b", "a")
    told(world, 2, "b", "c")
    assert world.mailbox.outcomes() == ["done", "done"]
    assert world.mailbox.replies()[-1].result == {"images": ["b", "c"]}
    assert world.hypervisor.images() == {"a", "b", "c"}
    assert world.hypervisor.calls(OWNER, "cache_images") == 3
    assert world.hypervisor.domains() == ()


def test_a_damaged_image_is_downloaded_again_and_others_only_once() -> None:
    world = damaged(0, 2)
    told(world, 1, "a", "b")
    assert world.mailbox.outcomes() == ["done"]
    assert world.hypervisor.images() == {"a", "b"}
    assert world.hypervisor.calls(OWNER, "cache_images") == 4


def test_an_image_that_is_damaged_each_time_fails_and_leaves_nothing_of_itself() -> None:
    world = damaged(0, *range(2, 100))
    told(world, 1, "bad", "good")
    (reply,) = world.mailbox.replies()
    assert reply.outcome == "failed"
    assert reply.error is not None
    assert (reply.error["code"], reply.error["data"]) == ("image_corrupt", {"images": ["bad"]})
    assert world.hypervisor.images() == {"good"}
    assert world.hypervisor.calls(OWNER, "cache_images") == 1 + PROMPT.attempts


def test_a_spawn_whose_image_came_damaged_is_tried_again_and_then_fails_with_nothing_left() -> None:
    def injected_faults(call: Call) -> InjectedFault:
        return InjectedFault(ending="corrupt" if call.verb == "spawn" else "done")

    world = World(
        injected_faults=injected_faults, settings=WorkerSettings(retry_wait_s=0, attempts=2)
    )
    world.agent().receive(instruction("spawn"))
    assert (world.mailbox.outcomes(), world.mailbox.codes()) == (["failed"], ["image_corrupt"])
    assert world.hypervisor.domains() == ()


def test_another_loss_is_no_damage_and_is_reported_as_itself() -> None:
    world = World(injected_faults=lambda _: InjectedFault(ending="lost_before"))
    told(world, 1, "a")
    assert world.mailbox.codes() == ["hypervisor_silent"]


def test_the_cache_outlives_the_process_and_a_damaged_list_only_costs_downloads(
    tmp_path: Path,
) -> None:
    SimulatedHypervisor(HARDWARE, tmp_path).cache_image(OWNER, ImageFile(id="a"))
    second = SimulatedHypervisor(HARDWARE, tmp_path)
    second.cache_image(OWNER, ImageFile(id="a"))
    assert second.images() == {"a"}
    assert second.effects(OWNER, "cache_images") == 0
    (tmp_path / "images.json").write_text("[")
    assert SimulatedHypervisor(HARDWARE, tmp_path).images() == frozenset()


def test_damage_can_be_injected_at_a_rate() -> None:
    injected_fault = seeded(FaultProfile(verbs={"cache_images": FaultRates(corrupt=1.0)}))(
        Call(OWNER, "cache_images", 0)
    )
    hypervisor = SimulatedHypervisor(HARDWARE, injected_faults=lambda _: injected_fault)
    with pytest.raises(Unreachable) as lost:
        hypervisor.cache_image(OWNER, ImageFile(id="a"))
    assert lost.value.code == "image_corrupt"


def test_a_cached_image_goes_once_no_guest_has_had_it_for_long() -> None:
    world = World(settings=WorkerSettings(retry_wait_s=0.0, images_kept_s=7 * DAY_S))
    agent = world.agent()
    agent.receive(instruction("cache_images", 1, OWNER, {"images": [{"id": "old"}, {"id": "img"}]}))
    agent.receive(instruction("spawn", args=spec(image=ImageFile(id="img")).to_json()))
    for days, expected in ((6, {"old", "img"}), (2, {"img"}), (30, {"img"})):
        world.clock.now += days * DAY_S
        agent.heartbeat()
        assert world.hypervisor.images() == expected
    agent.receive(instruction("destroy", fence=2))
    agent.heartbeat()
    assert world.hypervisor.images() == {"img"}
    world.clock.now += 8 * DAY_S
    agent.heartbeat()
    assert world.hypervisor.images() == frozenset()
