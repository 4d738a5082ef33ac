"""The picture of a host: what each thread and bar says, with colours and without."""

from collections.abc import Sequence

import pytest
from rich.console import Console

from conductor.cli.rendering.render_host import host_picture
from conductor.cli.rendering.render_layout import (
    Bar,
    Guest,
    HostMap,
    Use,
    host_map,
    label_of,
    memory_text,
    shares,
    size_text,
)
from conductor.processes.simulated_hosts import Plan, made
from conductor.store import Host, Inventory
from models.hardware import Flavor, HostCell, HostTopology, Image, Misfit, PagePool
from models.hardware.accounting import claim
from models.hardware.fitting.fit_guest import fit
from models.hardware.requirements.numa_constraints import guest_topology

SMT = Plan(cells=2, cores=8, threads=2, memory_mib=16384, huge_mib=8192)
DEDICATED = {"hw:cpu_policy": "dedicated"}


def occupied(
    plan: Plan, requests: Sequence[tuple[int, dict[str, str]]]
) -> tuple[Host, list[Guest]]:
    """Return a host of the plan with guests of these (vCPUs, extra specs) placed by the fitter."""
    topology = made(plan).topology
    guests = []
    for number, (vcpus, specs) in enumerate(requests):
        flavor = Flavor(f"flavor-{number}", vcpus, 1024, extra_specs=specs)
        wanted = guest_topology(flavor, Image("image", "", {}))
        placement = None
        if wanted is not None:
            placed = fit(topology, wanted, None)
            assert not isinstance(placed, Misfit), placed.message
            topology, placement = claim(topology, placed), placed
        guests.append(Guest(f"guest-{number}", vcpus, 1024, placement))
    inventory = {"VCPU": Inventory(8, 0, 2.0), "PCPU": Inventory(24)}
    return Host("drawn", topology, inventory, {"PCPU": 5}), guests


def drawn(host: Host, guests: list[Guest], width: int = 80, colours: bool = False) -> str:
    console = Console(
        width=width,
        force_terminal=colours,
        color_system="truecolor" if colours else None,
        record=True,
        file=None,
        quiet=False,
    )
    with console.capture() as captured:
        console.print(host_picture(host, guests))
    return captured.get()


def uses(drawn_host: HostMap, cell: int) -> dict[int, Use]:
    return {t.cpu: t.use for core in drawn_host.cells[cell].cores for t in core}


def test_every_thread_has_its_one_use() -> None:
    host, guests = occupied(SMT, [(3, DEDICATED)])
    cell = host_map(host, guests).cells[0]
    taken = [t for core in cell.cores for t in core if t.use is Use.PINNED]
    assert len(taken) == 3
    assert {t.guest for t in taken} == {0}
    assert [t.use for t in cell.cores[0]] == [Use.SHARED, Use.SHARED]
    assert uses(host_map(host, guests), 1)[15] is Use.FREE


def test_siblings_stand_in_one_column() -> None:
    host, guests = occupied(SMT, [])
    assert [[t.cpu for t in core] for core in host_map(host, guests).cells[0].cores[:2]] == [
        [0, 16],
        [1, 17],
    ]


def test_emulator_threads_are_told_from_vcpus() -> None:
    isolated = {**DEDICATED, "hw:emulator_threads_policy": "isolate"}
    host, guests = occupied(SMT, [(2, isolated)])
    marks = list(uses(host_map(host, guests), 0).values())
    assert marks.count(Use.EMULATOR) == 1
    assert marks.count(Use.PINNED) == 2
    assert "ae" in drawn(host, guests)


def test_siblings_that_isolation_keeps_idle_are_marked() -> None:
    cell = HostCell(
        0,
        shared_cpus=0b1111,
        dedicated_cpus=0b1111,
        memory_mib=4096,
        siblings=(0b0101, 0b1010),
    )
    flavor = Flavor("f", 1, 512, extra_specs={**DEDICATED, "hw:cpu_thread_policy": "isolate"})
    wanted = guest_topology(flavor, Image("i", "", {}))
    assert wanted is not None
    placed = fit(HostTopology((cell,)), wanted, None)
    assert not isinstance(placed, Misfit)
    host = Host("old", claim(HostTopology((cell,)), placed), {})
    guests = [Guest("alone", 1, 512, placed)]
    assert sorted(use.value for use in uses(host_map(host, guests), 0).values()) == [
        "blocked",
        "free",
        "free",
        "pinned",
    ]
    assert "ax" in drawn(host, guests)


def test_a_pin_of_nobody_known_is_shown_as_such() -> None:
    cell = HostCell(0, dedicated_cpus=0b11, memory_mib=1024, pinned_cpus=0b10)
    host = Host("odd", HostTopology((cell,)), {})
    assert uses(host_map(host, []), 0) == {0: Use.FREE, 1: Use.UNKNOWN}
    assert "??" in drawn(host, [])


def test_a_cpu_that_no_guest_may_use_is_left_blank() -> None:
    cell = HostCell(0, dedicated_cpus=0b01, memory_mib=1024, siblings=(0b01, 0b10))
    assert uses(host_map(Host("h", HostTopology((cell,)), {}), []), 0)[1] is Use.NOBODY


def test_bars_share_out_memory_and_pages_by_guest() -> None:
    pages = {**DEDICATED, "hw:mem_page_size": "2MB"}
    host, guests = occupied(SMT, [(2, pages), (2, {"hw:numa_nodes": "1"})])
    bars = {
        bar.label: bar for cell in host_map(host, guests).cells for bar in cell.bars if bar.parts
    }
    assert bars["2 MiB"].parts == ((0, 512),)
    assert bars["2 MiB"].text == "512/4096 pages"
    assert bars["shared"].parts == ((1, 2),)


def test_a_pool_without_pages_has_no_bar() -> None:
    pools = (PagePool(4, 100), PagePool(2048, 0))
    cell = HostCell(0, dedicated_cpus=1, memory_mib=1024, page_pools=pools)
    bars = host_map(Host("h", HostTopology((cell,)), {}), []).cells[0].bars
    assert [bar.label for bar in bars] == ["memory"]


def test_a_bar_is_never_longer_than_its_room() -> None:
    crowd = tuple((guest, 1) for guest in range(30))
    bar = Bar("memory", crowd, 1000, 100, "")
    assert sum(characters for _, characters in shares(bar, 12)) == 12
    assert shares(Bar("x", (), 0, 0, ""), 12) == []
    assert shares(Bar("x", ((0, 1),), 0, 10_000, ""), 12) == [(0, 1)]


@pytest.mark.parametrize(
    ("place", "label"), [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (52, "BA")]
)
def test_guests_have_labels(place: int, label: str) -> None:
    assert label_of(place) == label


def test_sizes_are_said_as_people_say_them() -> None:
    assert [size_text(kib) for kib in (4, 64, 2048, 1048576)] == [
        "4 KiB",
        "64 KiB",
        "2 MiB",
        "1 GiB",
    ]
    assert memory_text(512) == "512 MiB"
    assert memory_text(1536) == "1.5 GiB"


@pytest.mark.parametrize("width", [40, 80, 100, 160, 300])
@pytest.mark.parametrize("plan", [SMT, Plan(cells=8, cores=64, threads=2), Plan(cells=1, cores=1)])
def test_no_line_is_longer_than_the_terminal(width: int, plan: Plan) -> None:
    host, guests = occupied(plan, [])
    assert max(map(len, drawn(host, guests, width).splitlines())) <= width


def test_two_panels_fit_side_by_side_on_80_columns() -> None:
    host, guests = occupied(SMT, [])
    assert any(line.count("NUMA cell") == 2 for line in drawn(host, guests).splitlines())


def test_without_colours_the_labels_suffice() -> None:
    host, guests = occupied(SMT, [(2, DEDICATED), (2, DEDICATED)])
    plain = drawn(host, guests)
    assert "\x1b" not in plain
    assert "A  guest-0" in plain
    assert "█" not in plain


def test_with_colours_each_guest_has_its_own() -> None:
    host, guests = occupied(SMT, [(2, DEDICATED), (2, DEDICATED)])
    coloured = drawn(host, guests, colours=True)
    assert "48;2;230;162;60" in coloured
    assert "48;2;95;179;249" in coloured


def test_guests_without_a_numa_topology_are_counted_apart() -> None:
    host, guests = occupied(SMT, [(2, {}), (3, {})])
    assert "and 2 bound to no NUMA cell: 5 vCPU, 2 GiB" in drawn(host, guests)


def test_use_by_resource_class_stands_beside_the_name() -> None:
    host, guests = occupied(SMT, [])
    assert drawn(host, guests).splitlines()[0].strip() == "drawn  PCPU 5/24  VCPU 0/16"
