"""The demo's audit: right books pass, and each way of being wrong is named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from conductor.cli.demo.demo_audit import Books, disagreements
from conductor.cli.demo.demo_fleet import fleet, fleet_json
from conductor.cli.demo.demo_requests import INSTANCES, builds, definitions
from conductor.store import Allocation, Host, Instance, Inventory
from models.hardware import Flavor, HostCell, HostTopology, PagePool, PlacedCell, Placement
from models.ids import InstanceId
from models.lifecycle import InstanceState
from models.messages.hardware.hardware_json import host_from_json
from models.messages.requests import parse_request
from workers.hypervisor.ports import GuestDomain

PLACED = PlacedCell(0, 0, 0, 0b11, 1024, None, ((0, 2), (1, 3)))
CELL = HostCell(
    0,
    dedicated_cpus=0b1100,
    memory_mib=4096,
    page_pools=(PagePool(4, 1048576, used=262144),),
    memory_used_mib=1024,
    pinned_cpus=0b1100,
)
HOST = Host(
    "alpha",
    HostTopology((CELL,)),
    {"PCPU": Inventory(2), "MEMORY_MB": Inventory(4096)},
    {"PCPU": 2, "MEMORY_MB": 1024},
)
SMALLER = replace(HOST, inventory={**HOST.inventory, "PCPU": Inventory(1)})
INSTANCE = Instance(
    "i-1",
    "web",
    "p",
    "u",
    InstanceState.ACTIVE,
    Flavor("f", 2, 1024),
    None,
    {},
    0.0,
    0.0,
    host="alpha",
    placement=Placement((PLACED,)),
)
HELD = Allocation("i-1", "alpha", {"PCPU": 2, "MEMORY_MB": 1024})
DOMAIN = GuestDomain(InstanceId("i-1"), "running", None)
RIGHT = Books([HOST], [INSTANCE], [HELD], {"alpha": [DOMAIN]})


def with_cell(**changes: object) -> Books:
    cell = replace(CELL, **changes)
    return replace(RIGHT, hosts=[replace(HOST, topology=HostTopology((cell,)))])


def twin() -> Books:
    other = replace(INSTANCE, id="i-2", name="twin")
    return replace(
        RIGHT, instances=[INSTANCE, other], allocations=[HELD, replace(HELD, consumer_id="i-2")]
    )


def test_right_books_agree() -> None:
    assert disagreements(RIGHT) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: with_cell(pinned_cpus=0b0100), "noted are [2]"),
        (lambda: with_cell(memory_used_mib=1000), "1024 MiB are used, noted are 1000"),
        (lambda: with_cell(page_pools=(PagePool(4, 1048576, used=1),)), "pages, noted 1"),
        (lambda: with_cell(page_pools=(PagePool(4, 1000, used=262144),)), "are in use"),
        (twin, "are pinned twice"),
        (lambda: replace(RIGHT, allocations=[]), "has no allocation"),
        (lambda: replace(RIGHT, instances=[]), "is not there"),
        (lambda: replace(RIGHT, hosts=[replace(HOST, used={"PCPU": 1})]), "noted is"),
        (
            lambda: replace(
                RIGHT, hosts=[replace(HOST, inventory={**HOST.inventory, "PCPU": Inventory(1)})]
            ),
            "more than it has",
        ),
        (lambda: replace(RIGHT, domains={}), "should run and does not"),
        (
            lambda: replace(RIGHT, domains={"alpha": [DOMAIN], "beta": [DOMAIN]}),
            "no instance should",
        ),
    ],
)
def test_what_does_not_add_up_is_named(wrong: Callable[[], Books], named: str) -> None:
    assert any(named in line for line in disagreements(wrong()))


def test_the_fleet_is_mixed_as_promised() -> None:
    topologies = [hardware.topology for hardware in fleet().values()]
    assert len(topologies) == 14
    assert {len(topology.cells) for topology in topologies} == {1, 2, 4, 8}
    assert {topology.cells[0].threads_per_core for topology in topologies} == {1, 2}
    assert any(pool.size_kib == 1048576 for t in topologies for pool in t.cells[0].page_pools)


def test_the_fleet_as_a_file_is_the_fleet() -> None:
    for written, (name, hardware) in zip(fleet_json(), fleet().items(), strict=True):
        assert written.pop("name") == name
        assert host_from_json(written) == hardware.topology


def test_every_request_of_the_demo_is_a_right_one() -> None:
    requests = [parse_request(task, body) for task, body in (*definitions(), *builds())]
    assert sum(getattr(request, "count", 0) for request in requests) == INSTANCES
    assert builds() == builds()
