"""What flavors and images mean together, and every combination that means nothing."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Rejected
from models.hardware import GuestTopology, cpus_of
from tests.hardware.builders import topology_for

Specs = dict[str, str]
Properties = dict[str, Any]

PINNED = {"hw:cpu_policy": "dedicated"}
MIXED = {"hw:cpu_policy": "mixed"}
TWO_NODES = {"hw:numa_nodes": "2"}
MAPS = {
    "hw:numa_cpus.0": "0",
    "hw:numa_cpus.1": "1-3",
    "hw:numa_mem.0": "1024",
    "hw:numa_mem.1": "3072",
}


def topology(specs: Specs | None = None, properties: Properties | None = None) -> GuestTopology:
    found = topology_for(specs, properties)
    assert found is not None
    return found


def shares(guest: GuestTopology) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Return (shared vCPUs, dedicated vCPUs, MiB) of each cell."""
    return [
        (cpus_of(cell.shared_vcpus), cpus_of(cell.dedicated_vcpus), cell.memory_mib)
        for cell in guest.cells
    ]


@pytest.mark.parametrize(
    ("specs", "properties"),
    [
        ({}, {}),
        ({"hw:cpu_policy": "shared"}, {}),
        ({"resources:VCPU": "4"}, {}),
        ({"hw:emulator_threads_policy": "share"}, {}),
        ({"hw:cpu_realtime": "no", "hw:cpu_realtime_mask": "nonsense"}, {}),
        ({"hw:locked_memory": "false"}, {}),
        ({"hw:pmem": " , "}, {}),
    ],
)
def test_no_topology_arises_where_nobody_asks_for_one(specs: Specs, properties: Properties) -> None:
    assert topology_for(specs, properties) is None


@pytest.mark.parametrize(
    ("specs", "properties"),
    [
        (PINNED, {}),
        ({}, {"hw_cpu_policy": "dedicated"}),
        ({"hw:numa_nodes": "1"}, {}),
        ({}, {"hw_numa_nodes": 1}),
        ({"hw:mem_page_size": "small"}, {}),
        ({"hw:pmem": "big,small"}, {}),
        ({"resources:PCPU": "4"}, {}),
        ({"resources2:PCPU": "4"}, {}),
    ],
)
def test_nodes_pinning_pages_and_persistent_memory_each_make_a_topology(
    specs: Specs, properties: Properties
) -> None:
    assert len(topology(specs, properties).cells) == 1


def test_nodes_share_vcpus_and_memory_equally() -> None:
    assert shares(topology(TWO_NODES)) == [((0, 1), (), 2048), ((2, 3), (), 2048)]
    assert shares(topology({**TWO_NODES, **PINNED})) == [((), (0, 1), 2048), ((), (2, 3), 2048)]


def test_maps_make_asymmetric_cells() -> None:
    expected = [((0,), (), 1024), ((1, 2, 3), (), 3072)]
    assert shares(topology({**TWO_NODES, **MAPS})) == expected
    flat = {key.replace("hw:", "hw_"): value for key, value in MAPS.items()}
    assert shares(topology(TWO_NODES, flat)) == expected
    typed = {"hw_numa_cpus": [[0], [1, 2, 3]], "hw_numa_mem": [1024, 3072]}
    assert shares(topology({}, {**typed, "hw_numa_nodes": "2"})) == expected


def test_an_asymmetric_guest_of_six_vcpus_has_two_cells() -> None:
    specs = {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0,1",
        "hw:numa_mem.0": "2048",
        "hw:numa_cpus.1": "2,3,4,5",
        "hw:numa_mem.1": "4096",
    }
    guest = topology_for(specs, vcpus=6, memory_mib=6144)
    assert guest is not None
    assert shares(guest) == [((0, 1), (), 2048), ((2, 3, 4, 5), (), 4096)]


def test_what_nobody_asked_for_stays_unsaid() -> None:
    cell = topology(TWO_NODES).cells[0]
    assert (cell.page_size_kib, cell.cpu_policy, cell.cpu_thread_policy) == (None, None, None)
    assert topology({**TWO_NODES, "resources:VCPU": "4"}).cells[0].cpu_policy == "shared"


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ("dedicated", "shared", "dedicated"),
        ("dedicated", "mixed", "dedicated"),
        ("dedicated", "dedicated", "dedicated"),
        ("", "dedicated", "dedicated"),
    ],
)
def test_a_dedicated_flavor_wins_over_any_image(flavor: str, image: str, policy: str) -> None:
    guest = topology({"hw:cpu_policy": flavor}, {"hw_cpu_policy": image})
    assert guest.cells[0].cpu_policy == policy


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        (None, "isolate", "isolate"),
        ("prefer", "isolate", "prefer"),
        ("require", "require", "require"),
        ("isolate", None, "isolate"),
    ],
)
def test_thread_policies_combine(flavor: str | None, image: str | None, policy: str) -> None:
    specs = {**PINNED, **({"hw:cpu_thread_policy": flavor} if flavor else {})}
    guest = topology(specs, {"hw_cpu_thread_policy": image})
    assert guest.cells[0].cpu_thread_policy == policy


@pytest.mark.parametrize(
    ("specs", "properties", "policy"),
    [
        ({"trait:HW_CPU_HYPERTHREADING": "required"}, {}, "require"),
        ({"trait1:HW_CPU_HYPERTHREADING": "forbidden"}, {}, "isolate"),
        ({}, {"traits_required": ["HW_CPU_HYPERTHREADING"]}, "require"),
        ({}, {"trait:HW_CPU_HYPERTHREADING": "required"}, "require"),
    ],
)
def test_the_hyperthreading_trait_is_a_thread_policy(
    specs: Specs, properties: Properties, policy: str
) -> None:
    assert topology({**PINNED, **specs}, properties).cells[0].cpu_thread_policy == policy


@pytest.mark.parametrize(
    ("specs", "dedicated"),
    [
        ({"hw:cpu_dedicated_mask": "0,2-3"}, (0, 2, 3)),
        ({"hw:cpu_dedicated_mask": "^0"}, (1, 2, 3)),
        ({"hw:cpu_realtime": "y", "hw:cpu_realtime_mask": "^0-1"}, (2, 3)),
        ({"hw:cpu_realtime": "1", "hw:emulator_threads_policy": "share"}, (0, 1, 2, 3)),
    ],
)
def test_mixed_guests_have_dedicated_vcpus_by_mask_or_by_realtime(
    specs: Specs, dedicated: tuple[int, ...]
) -> None:
    ((shared, pinned, _),) = shares(topology({**MIXED, **specs}))
    assert pinned == dedicated
    assert sorted(shared + pinned) == [0, 1, 2, 3]


def test_a_mixed_guest_may_be_realtime_throughout_with_an_emulator_policy() -> None:
    specs = {**MIXED, "hw:cpu_realtime": "1", "hw:emulator_threads_policy": "share"}
    assert shares(topology(specs)) == [((), (0, 1, 2, 3), 4096)]


def test_the_images_realtime_mask_beats_the_flavors() -> None:
    """Check H9."""
    specs = {**MIXED, "hw:cpu_realtime": "true", "hw:cpu_realtime_mask": "^0"}
    ((_, pinned, _),) = shares(topology(specs, {"hw_cpu_realtime_mask": "^0-2"}))
    assert pinned == (3,)


@pytest.mark.parametrize("spelling", ["1", "t", "true", "on", "y", "yes", " TRUE ", "Yes"])
def test_booleans_are_true_in_these_spellings_only(spelling: str) -> None:
    specs = {**PINNED, "hw:cpu_realtime_mask": "nonsense"}
    with pytest.raises(Rejected):
        topology_for({**specs, "hw:cpu_realtime": spelling})
    assert topology_for({**specs, "hw:cpu_realtime": "enabled"}) is not None


@pytest.mark.parametrize(
    ("flavor", "image", "size"),
    [
        ("small", None, -1),
        ("large", None, -2),
        ("any", None, -3),
        ("2048", None, 2048),
        ("2MB", None, 2048),
        ("2MiB", None, 2048),
        ("1GB", None, 1024**2),
        ("0.5GiB", None, 524288),
        ("16Mb", None, 2048),
        ("large", "1GB", 1024**2),
        ("any", 2048, 2048),
        ("any", "small", -1),
    ],
)
def test_page_sizes_are_names_kib_or_numbers_with_units(
    flavor: str, image: object, size: int
) -> None:
    guest = topology({"hw:mem_page_size": flavor}, {"hw_mem_page_size": image})
    assert guest.cells[0].page_size_kib == size


def test_all_vcpus_may_be_realtime_only_with_an_emulator_policy() -> None:
    specs = {**PINNED, "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "0-3"}
    with pytest.raises(Rejected):
        topology_for(specs)
    assert topology_for({**specs, "hw:emulator_threads_policy": "share"}) is not None


def test_pcpu_resources_count_the_isolated_emulators_cpu() -> None:
    specs = {"resources:PCPU": "5", "hw:emulator_threads_policy": "isolate"}
    guest = topology(specs)
    assert guest.emulator_threads_policy == "isolate"
    assert guest.cells[0].cpu_policy == "dedicated"


def test_the_order_of_keys_decides_nothing() -> None:
    specs = {**TWO_NODES, **MAPS, **PINNED}
    backwards = dict(reversed(specs.items()))
    assert topology_for(specs) == topology_for(backwards)
