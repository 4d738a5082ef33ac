"""Where something would go, who would have to move for it, and how many more fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from conductor.placement.local.host_claims import HostAllocation, with_allocations
from conductor.placement.providers import SHARING
from conductor.scheduling.analysis.fleet_capacity import Capacity
from conductor.scheduling.analysis.host_losses import after_losses
from conductor.scheduling.analysis.what_if import Guest, WhatIf
from conductor.scheduling.fleet.fleet_snapshot import Aggregate, Catalogue, Fleet
from conductor.scheduling.host_selection import NoHost
from conductor.scheduling.request.group_rules import GroupRule
from conductor.scheduling.request.instance_shape import shape_of
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shape_placement import place
from conductor.scheduling.request.shared_providers import SharedProviders
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Host, Inventory, Provider
from models.errors import Rejected
from models.hardware import Flavor, HostTopology, Misfit
from tests.scheduling.world import IMAGE, flavor, host, pinned

SETTINGS = SchedulingSettings()


def spec(wanted: Flavor, name: str = "new", **more: object) -> RequestSpec:
    return RequestSpec(name, shape_of(wanted, IMAGE), **more)  # type: ignore[arg-type]  # as named


@dataclass
class Filled:
    """A fleet with guests on it, and nothing but that."""

    hosts: dict[str, Host] = field(default_factory=dict)
    guests: dict[str, list[Guest]] = field(default_factory=dict)

    def add(self, *hosts: Host) -> None:
        self.hosts.update((item.name, item) for item in hosts)

    def put(self, name: str, where: str, wanted: Flavor) -> None:
        asks = spec(wanted, name)
        placement = place(asks.shape, self.hosts[where], pack=True)
        assert not isinstance(placement, Misfit)
        holding = HostAllocation(name, "p", placement, asks.shape.amounts)
        self.hosts[where] = with_allocations(self.hosts[where], [holding], 0.0)
        self.guests.setdefault(where, []).append(Guest(name, name, holding, asks))

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.hosts.values(), up=self.hosts)

    def on(self, name: str) -> Sequence[Guest]:
        return self.guests.get(name, [])

    def of(self, names: Iterable[str]) -> Mapping[str, Sequence[Guest]]:
        return {name: self.on(name) for name in names}


def test_what_would_happen_leaves_the_fleet_as_it_is() -> None:
    fleet = Fleet([host("a", cells=1), host("b", cells=1)], up=["a", "b"])
    before = list(fleet.hosts)
    placed, refused = WhatIf(fleet, SETTINGS, 0.0).placed(spec(pinned(vcpus=3)), 3)
    assert [selection.host.name for selection in placed] == ["a", "b"]
    assert isinstance(refused, NoHost)
    assert fleet.hosts == before


def test_members_of_a_group_are_placed_by_its_rule_one_after_the_other() -> None:
    fleet = Fleet([host(name) for name in "abc"], up="abc")
    rule = GroupRule("g", "anti-affinity")
    placed, refused = WhatIf(fleet, SETTINGS, 0.0).placed(spec(flavor(), group=rule), 4)
    assert sorted(selection.host.name for selection in placed) == ["a", "b", "c"]
    assert "anti_affinity" in str(refused and refused.to_json())


def test_one_move_that_makes_room_is_found() -> None:
    filled = Filled()
    filled.add(host("a", cells=1), host("b", cells=1), host("c", cells=1, dedicated=1))
    filled.put("small", "a", pinned(vcpus=1, memory_mib=64))
    filled.put("large", "b", pinned(vcpus=3, memory_mib=64))
    looking = WhatIf(filled.fleet, SETTINGS, 0.0)
    search = looking.moves_that_help(spec(pinned(vcpus=4)), filled.on)
    assert str(search.found) == "fits on a if small moves from a to b"


def test_two_moves_are_found_where_one_does_not_do() -> None:
    filled = Filled()
    filled.add(host("a", cells=1), host("b", cells=1, dedicated=1), host("c", cells=1, dedicated=1))
    filled.put("one", "a", pinned(vcpus=1, memory_mib=64))
    filled.put("two", "a", pinned(vcpus=1, memory_mib=64))
    looking = WhatIf(filled.fleet, SETTINGS, 0.0)
    search = looking.moves_that_help(spec(pinned(vcpus=4)), filled.on)
    assert search.found is not None
    assert search.found.host == "a"
    assert {move.name for move in search.found.moves} == {"one", "two"}
    assert {move.target for move in search.found.moves} == {"b", "c"}
    assert search.found.to_json()["moves"][0]["from"] == "a"


def test_where_no_moves_help_the_search_says_how_far_it_went() -> None:
    filled = Filled()
    filled.add(host("a", cells=1))
    filled.put("small", "a", pinned(vcpus=1, memory_mib=64))
    search = WhatIf(filled.fleet, SETTINGS, 0.0).moves_that_help(spec(pinned(vcpus=4)), filled.on)
    assert (search.found, search.hosts, search.trials) == (None, 1, 1)


def test_moves_are_not_sought_on_hosts_that_are_ruled_out_otherwise() -> None:
    filled = Filled()
    filled.add(host("a", cells=1), host("b", cells=1, dedicated=1))
    filled.put("small", "a", pinned(vcpus=1, memory_mib=64))
    request = spec(pinned(vcpus=4), ignored=frozenset({"a"}))
    search = WhatIf(filled.fleet, SETTINGS, 0.0).moves_that_help(request, filled.on)
    assert (search.found, search.hosts) == (None, 1)


@pytest.mark.parametrize("strategy", ["spread", "pack"])
@pytest.mark.parametrize(
    "wanted",
    [
        flavor(vcpus=3),
        flavor(vcpus=1, memory_mib=1500),
        pinned(vcpus=2),
        pinned(vcpus=3, memory_mib=3000),
        pinned(vcpus=2, **{"hw:numa_nodes": "2"}),
        flavor(vcpus=4, memory_mib=1024, **{"hw:numa_nodes": "2"}),
    ],
)
def test_as_many_fit_as_are_said_to(wanted: Flavor, strategy: str) -> None:
    hosts = [host("a"), host("b", cells=1, dedicated=6), host("c", shared=2, memory_mib=3000)]
    settings = SchedulingSettings(strategy=strategy)  # type: ignore[arg-type]  # one of two
    fleet = Fleet(hosts, up=["a", "b", "c"])
    room = Capacity(spec(wanted), fleet, settings).remaining
    placed, refused = WhatIf(fleet, settings, 0.0).placed(spec(wanted), room.total + 1)
    assert len(placed) == room.total > 0
    assert refused is not None


def test_room_for_nothing_says_why() -> None:
    fleet = Fleet([host("a"), host("b")], up=["a"])
    room = Capacity(spec(pinned(vcpus=64)), fleet, SETTINGS).remaining
    assert room.total == 0
    assert [removal.code for removal in room.removals] == ["down", "no_room_pcpu"]


def test_the_loss_of_a_host_takes_its_room_and_its_guests() -> None:
    filled = Filled()
    filled.add(*(host(name, cells=1) for name in "abc"))
    filled.put("vm", "a", pinned(vcpus=2, memory_mib=64))
    request = spec(pinned(vcpus=1, memory_mib=64))
    assert Capacity(request, filled.fleet, SETTINGS).remaining.total == 10
    losses = after_losses(Capacity(request, filled.fleet, SETTINGS), 1, filled.of)
    assert {(loss.lost, loss.more) for loss in losses} == {(("a",), 6), (("b",), 6)}


def test_guests_without_a_place_after_a_loss_are_named() -> None:
    filled = Filled()
    filled.add(host("a", cells=1), host("b", cells=1, dedicated=1))
    filled.put("vm", "a", pinned(vcpus=2, memory_mib=64))
    request = spec(pinned(vcpus=1, memory_mib=64))
    worst = after_losses(Capacity(request, filled.fleet, SETTINGS), 1, filled.of)[0]
    assert (worst.lost, worst.homeless) == (("a",), ("vm",))


def test_a_fleet_is_as_it_was_after_its_losses_were_tried() -> None:
    filled = Filled()
    filled.add(*(host(name, cells=1) for name in "abc"))
    filled.put("vm", "a", pinned(vcpus=2, memory_mib=64))
    fleet = filled.fleet
    before, up = list(fleet.hosts), fleet.up.copy()
    after_losses(Capacity(spec(pinned(vcpus=1, memory_mib=64)), fleet, SETTINGS), 2, filled.of)
    assert fleet.hosts == before
    assert (fleet.up == up).all()


def test_no_more_fit_than_aggregates_let_a_host_have() -> None:
    few = Aggregate("few", frozenset("ab"), {"max_instances_per_host": "2"})
    hosts = [replace(host(n), provider_id=n) for n in "abc"]
    fleet = Fleet(hosts, "abc", Catalogue({}, (few,)))
    for wanted in (flavor(vcpus=4), pinned(vcpus=2), flavor(**{"resources1:CUSTOM_CARD": "1"})):
        fleet.providers = SharedProviders([card("card-a", "a", 9), card("card-c", "c", 1)])
        room = Capacity(spec(wanted), fleet, SETTINGS).remaining
        placed, _ = WhatIf(fleet, SETTINGS, 0.0).placed(spec(wanted), room.total + 1)
        assert room.by_host == Counter(selection.host.name for selection in placed)
        assert room.by_host["a"] == 2
    losses = after_losses(Capacity(spec(flavor(vcpus=4)), fleet, SETTINGS), 1, lambda _: {})
    assert {loss.more for loss in losses} == {room_without(fleet, name) for name in ("a", "c")}


def room_without(fleet: Fleet, name: str) -> int:
    room = Capacity(spec(flavor(vcpus=4)), fleet, SETTINGS).remaining
    return room.total - room.by_host[name]


@pytest.mark.parametrize("specs", [{"hw:cpu_thread_policy": "isolate"}, {"hw:numa_nodes": "2"}])
def test_what_only_the_fitter_knows_is_said_where_nothing_fits(specs: dict[str, str]) -> None:
    plain = host("a")
    every = plain.topology.cells[0].dedicated_cpus
    cell = replace(plain.topology.cells[0], siblings=(every & 0b00110000, every & 0b11000000))
    fleet = Fleet([replace(plain, topology=HostTopology((cell,)))], up=["a"])
    request = spec(pinned(vcpus=2, memory_mib=64, **specs))
    room = Capacity(request, fleet, SETTINGS).remaining
    _, refused = WhatIf(fleet, SETTINGS, 0.0).placed(request, 1)
    assert room.total == 0
    assert refused is not None
    assert (
        [str(removal) for removal in room.removals]
        == [str(removal) for removal in refused.removals]
        != []
    )


def test_what_asks_for_nothing_fits_any_number_of_times_and_is_not_counted() -> None:
    nothing = flavor(root_gb=0, **{"resources:VCPU": "0", "resources:MEMORY_MB": "0"})
    with pytest.raises(Rejected) as refused:
        _ = Capacity(spec(nothing), Fleet([host("a")], up="a"), SETTINGS).remaining
    assert refused.value.code == "nothing_asked"


def test_storage_that_is_shared_is_not_lost_with_a_host_and_is_its_users_own() -> None:
    filled = Filled()
    hosts = [replace(host(name), provider_id=name, aggregates=("shared",)) for name in "abc"]
    filled.add(*(replace(item, inventory=without_disk(item)) for item in hosts))
    fleet = filled.fleet
    traits, shared = frozenset({SHARING}), frozenset({"shared"})
    full = Provider(
        "pool", "pool", None, "pool", 0, {"DISK_GB": Inventory(50)}, {"DISK_GB": 20}, traits, shared
    )
    fleet.providers = SharedProviders([full])
    request = spec(flavor(root_gb=10))
    capacity = Capacity(request, fleet, SETTINGS)
    assert capacity.remaining.total == 3
    assert {loss.more for loss in after_losses(capacity, 1, filled.of)} == {3}
    own = HostAllocation("vm", "p", None, {"VCPU": 1})
    guest = Guest("vm", "vm", own, spec(flavor(root_gb=20), "vm"), {"pool": {"DISK_GB": 20}})
    fleet.put(with_allocations(filled.hosts["b"], [own], 0.0))
    losses = after_losses(Capacity(request, fleet, SETTINGS), 3 - 1, lambda _: {"b": [guest]})
    assert {(loss.more, loss.homeless) for loss in losses} == {(3, ())}


def test_what_a_child_shares_with_other_hosts_is_counted_once() -> None:
    hosts = [replace(host(name), provider_id=name, aggregates=("near",)) for name in "ab"]
    fleet = Fleet(hosts, up="ab")
    shared = replace(
        card("card-a", "a", 3), traits=frozenset({SHARING}), aggregates=frozenset({"near"})
    )
    fleet.providers = SharedProviders([shared, card("card-b", "b", 1)])
    request = spec(flavor(**{"resources1:CUSTOM_CARD": "1"}))
    assert Capacity(request, fleet, SETTINGS).remaining.by_host == {"a": 3, "b": 1}
    assert fleet.providers.get("card-a") == shared


def test_a_move_frees_a_card_too_and_takes_one_where_it_goes() -> None:
    filled = Filled()
    filled.add(*(replace(host(name), provider_id=name) for name in "ab"))
    fleet = filled.fleet
    full = replace(card("card-a", "a", 2), used={"CUSTOM_CARD": 1})
    fleet.providers = SharedProviders([full, card("card-b", "b", 1)])
    one, two = flavor(**{"resources1:CUSTOM_CARD": "1"}), flavor(**{"resources1:CUSTOM_CARD": "2"})
    held = HostAllocation("vm", "p", None, {"VCPU": 2})
    fleet.put(with_allocations(filled.hosts["a"], [held], 0.0))
    guest = Guest("vm", "vm", held, spec(one, "vm"), {"card-a": {"CUSTOM_CARD": 1}})

    def on(name: str) -> list[Guest]:
        return [guest] if name == "a" else []

    search = WhatIf(fleet, SETTINGS, 0.0).moves_that_help(spec(two), on)
    assert str(search.found) == "fits on a if vm moves from a to b"
    fleet.providers = SharedProviders(
        [full, replace(card("card-b", "b", 1), used={"CUSTOM_CARD": 1})]
    )
    assert WhatIf(fleet, SETTINGS, 0.0).moves_that_help(spec(two), on).found is None


def card(name: str, parent: str, count: int) -> Provider:
    return Provider(name, name, parent, parent, inventories={"CUSTOM_CARD": Inventory(count)})


def without_disk(of: Host) -> dict[str, Inventory]:
    return {name: inventory for name, inventory in of.inventory.items() if name != "DISK_GB"}
