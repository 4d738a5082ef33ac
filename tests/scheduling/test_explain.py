"""Why this host, why none, what would have changed it; and every host's own verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conductor.scheduling.analysis.explanation import POSSIBLE, history_of, verdicts
from conductor.scheduling.fleet.fit_cache import Fits, Lack, lack_of
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.host_selection import select_host
from conductor.scheduling.request.instance_shape import shape_of
from conductor.scheduling.request.shape_placement import place
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Decision
from models.hardware import Flavor, HostTopology, Misfit, PagePool
from models.hardware.fitting import misfits
from models.hardware.fitting.affinity import DEVICES, NETWORK
from models.messages.internal import Reply
from tests.scheduling.test_whatif import spec
from tests.scheduling.world import World, flavor, host, pinned, refusal


def decision_of(world: World, reply: Reply) -> Decision:
    with world.store.read() as uow:
        (found,) = uow.decisions.where(operation_id=reply.token.operation_id)
    return found


def story(world: World, reply: Reply) -> list[str]:
    decision = decision_of(world, reply)
    return list(history_of(decision.detail, decision.host))


def test_a_choice_is_told_with_who_was_ruled_out_and_who_came_second() -> None:
    world = World()
    world.add_hosts(host("a", shared=32), host("b", shared=4), host("tiny", disk_gb=2))
    told = story(world, world.build(flavor(vcpus=16, memory_mib=64, root_gb=1), host="a"))
    assert told == ["a, the only possible host of 3 (2 are not a, which was asked for)"]
    told = story(world, world.build(flavor(vcpus=4, memory_mib=64)))
    assert (
        told[0]
        == "a, of 2 possible hosts of 3 (1 lacks free disk (need 10 GiB, best 2 GiB on tiny))"
    )
    assert told[1].startswith("b came second, 0.")
    assert "room_left gave it" in told[1]
    assert told[2] == "else b"


def test_the_runner_up_says_how_much_it_was_short_of() -> None:
    world = World()
    world.add_hosts(host("a", shared=8), host("b", shared=4))
    decision = decision_of(world, world.build(flavor(vcpus=4, memory_mib=64)))
    second: dict[str, Any] = decision.detail["runner_up"]
    assert (second["host"], second["decided_by"]) == ("b", "room_left")
    assert second["best"] - second["has"] == second["behind"] > 0
    assert [name for name, _ in decision.detail["scores"]] == ["a", "b"]


def test_between_equals_the_name_decides_and_is_said_to() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    told = story(world, world.build())
    assert told[1] == "b came second: the other is the first by name of equals"


def test_a_draw_is_said_to_be_one() -> None:
    world = World(settings=SchedulingSettings(seed=1, subset=3))
    world.add_hosts(*(host(f"h{n}") for n in range(5)))
    told = story(world, world.build())
    assert "drawn from the 3 best, so that schedulers seldom collide" in told


def test_a_choice_that_was_taken_meanwhile_says_so() -> None:
    detail = {"hosts": 2, "possible": 2, "checks": [], "scores": [["a", 1.0], ["b", 0.5]]}
    assert history_of(detail, "b") == (
        "b, of 2 possible hosts of 2",
        "a came first and had been taken when it was claimed",
    )


def test_a_refusal_names_the_nearest_host_and_what_it_lacks() -> None:
    world = World()
    world.add_hosts(*(host(f"small-{n}", dedicated=2) for n in range(5)))
    world.add_hosts(host("near", dedicated=12))
    reply = world.build(pinned(vcpus=16))
    told = story(world, reply)
    assert told[0] == refusal(reply)
    assert told[1] == (
        "nearest is near, 4 short of 16: 1 lacks free dedicated CPUs in one NUMA cell "
        "(need 16, best 12 on near)"
    )
    assert "such as small-0, small-1, small-2" in told[2]


def test_a_record_is_small_however_large_the_fleet() -> None:
    sizes = []
    for count in (10, 500):
        world = World()
        world.add_hosts(*(host(f"h{n:03}", dedicated=n % 7) for n in range(count)))
        sizes.append(len(repr(decision_of(world, world.build(pinned(vcpus=16))).detail)))
    assert sizes[1] < sizes[0] + 50


def test_records_of_before_are_told_as_far_as_they_go() -> None:
    old = {"hosts": 3, "checks": [{"check": "down", "hosts": 1}], "scores": [], "alternates": []}
    assert history_of(old, "a") == ("a, of 3 hosts (1 down)",)
    refused = {"hosts": 1, "checks": old["checks"], "error": {"message": "1 host: 1 is down"}}
    assert history_of(refused, None) == ("1 host: 1 is down",)


def test_every_host_has_its_own_verdict() -> None:
    hosts = [host("a", shared=8), host("b"), host("c", disk_gb=1), host("d")]
    fleet = Fleet(hosts, up=["a", "b", "c"])
    found = verdicts(spec(flavor(vcpus=4)), fleet, SchedulingSettings())
    assert [(verdict.host, verdict.check) for verdict in found] == [
        ("a", POSSIBLE),
        ("b", POSSIBLE),
        ("c", "no_room_disk_gb"),
        ("d", "down"),
    ]
    assert (found[2].need, found[2].have) == (10, 1)
    assert found[0].weights is not None
    assert found[0].weights["room_left"] > 0
    assert found[0].to_json()["text"] == "takes it"


def test_a_verdict_tells_what_the_fitter_found() -> None:
    fleet = Fleet([host("a")], up=["a"])
    wanted = pinned(vcpus=2, **{"hw:mem_page_size": "1GB"})
    (found,) = verdicts(spec(wanted), fleet, SchedulingSettings())
    assert found.check == "numa_pages"
    assert found.text == "lacks free pages of 1 GiB in one NUMA cell"
    split = pinned(vcpus=2, memory_mib=1025, **{"hw:mem_page_size": "2MB"})
    cells = tuple(
        replace(cell, page_pools=(PagePool(2048, 4096),)) for cell in host("b").topology.cells
    )
    fleet = Fleet([replace(host("b"), topology=HostTopology(cells))], up=["b"])
    (found,) = verdicts(spec(split), fleet, SchedulingSettings())
    assert found.check == "memory_not_whole_pages"
    assert (found.text, found.need) == ("lacks pages of which its memory is a whole number", None)


def test_every_reason_of_the_fitter_has_words_and_numbers_only_where_they_compare() -> None:
    codes = (*misfits.WORDS, misfits.TOO_FEW, misfits.CONTENDED, misfits.AFFINITY, NETWORK, DEVICES)
    for code in codes:
        one, several = Lack(code, 4, 2).lacks
        assert one.removeprefix("lacks ") == several.removeprefix("lack ") != code.replace("_", " ")
    plain = host("a")
    every = plain.topology.cells[0].dedicated_cpus
    cell = replace(plain.topology.cells[0], siblings=(every & 0b00110000, every & 0b11000000))
    fleet = Fleet([replace(plain, topology=HostTopology((cell,)))], up=["a"])
    alone = spec(pinned(vcpus=2, **{"hw:cpu_thread_policy": "isolate"}))
    refused = select_host(alone, fleet, SchedulingSettings(), Fits())
    assert str(refused) == "1 host: 1 lacks cores whose other threads nobody else may use"
    shared = spec(flavor(vcpus=2, memory_mib=9000, **{"hw:numa_nodes": "1"}))
    refused = select_host(shared, fleet, SchedulingSettings(), Fits())
    assert "MiB" in str(refused)


def said_of(wanted: Flavor, *pools: PagePool, **cell: Any) -> str:
    """Return why a host of one NUMA cell with these pages takes no such instance."""
    plain = host("a")
    changed = replace(plain.topology.cells[0], page_pools=pools, **cell)
    fleet = Fleet([replace(plain, topology=HostTopology((changed,)))], up=["a"])
    return str(select_host(spec(wanted), fleet, SchedulingSettings(), Fits()))


def test_pages_that_are_missing_are_said_with_their_size_and_in_mib() -> None:
    nodes = {"hw:numa_nodes": "1"}
    small = (PagePool(4, 256 * 1000), PagePool(2048, 100))
    no_size = said_of(flavor(vcpus=1, memory_mib=2000, **nodes), *small)
    assert "free memory in one NUMA cell (it asks for no page size: pages of 4 KiB)" in no_size
    assert "need 2,000 MiB, best 1,000 MiB on a" in no_size
    mixed = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1"}
    memory = {"hw:numa_mem.0": "500", "hw:numa_mem.1": "2000"}
    sized = {**mixed, **memory, "hw:mem_page_size": "2MB"}
    two = replace(host("a").topology.cells[0], page_pools=small)
    answer = place(
        shape_of(flavor(vcpus=2, memory_mib=2500, **sized), None),
        replace(host("a"), topology=HostTopology((two, replace(two, id=1)))),
        pack=False,
    )
    assert isinstance(answer, Misfit)
    assert "free pages of 2 MiB, the best has 100" in answer.message


def test_the_reason_is_that_of_the_guest_cell_that_fits_nowhere() -> None:
    """A guest cell that does fit elsewhere lacks nothing, however near it came to fitting here."""
    specs = {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0",
        "hw:numa_cpus.1": "1,2,3,4,5,6",
        "hw:numa_mem.0": "4000",
        "hw:numa_mem.1": "1000",
    }
    plain = host("a")
    cells = (plain.topology.cells[0], replace(plain.topology.cells[1], memory_mib=3999))
    topology = HostTopology(cells)
    wanted = pinned(vcpus=7, memory_mib=5000, **specs)
    answer = place(shape_of(wanted, None), replace(plain, topology=topology), pack=False)
    assert isinstance(answer, Misfit)
    lack = lack_of(answer, shape_of(wanted, None).guest)
    assert (lack.code, lack.need, lack.have) == ("not_enough_dedicated_cpus", 6, 4)
