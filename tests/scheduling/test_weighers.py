"""Which of the possible hosts comes first: failures, multipliers, names, chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from conductor.processes.scheduling_options import scheduling_settings
from conductor.scheduling import plugins
from conductor.scheduling.filters.aggregate_filters import in_zone
from conductor.scheduling.filters.filter_table import DEFAULT_FILTERS, PHYSICAL
from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.fleet.history import FORGIVEN_S, SchedulingHistory
from conductor.scheduling.host_selection import Selection, select_host
from conductor.scheduling.plugins import filters_named, weighers_named
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.settings import SchedulingSettings
from conductor.scheduling.weighers.capacity_weighers import room_left
from conductor.scheduling.weighers.host_weighers import few_instances, less_busy, own_cell
from conductor.scheduling.weighers.weigher_table import SPREAD, WEIGHERS
from conductor.settings import read_settings
from conductor.store import Host
from models.errors import Rejected
from models.messages.catalogue import WEIGHER_NAMES
from tests.scheduling.test_whatif import spec
from tests.scheduling.world import World, chosen, flavor, host, refusal


def test_a_host_that_failed_comes_last_until_it_is_forgiven() -> None:
    world = World()
    world.add_hosts(host("a", shared=8), host("b"))
    assert chosen(world.build(flavor(vcpus=1))) == ["a"]
    message = world.ask(world.add_instance(flavor(vcpus=1)), ignored=("a",))
    again = message.model_copy(update={"token": message.token.model_copy(update={"attempt": 2})})
    assert chosen(world.answer(again)) == ["b"]
    assert chosen(world.build(flavor(vcpus=1))) == ["b"]
    assert chosen(world.build(flavor(vcpus=1), host="a")) == ["a"]


def test_failures_count_less_with_time() -> None:
    now = [0.0]
    history = SchedulingHistory(lambda: now[0])
    history.note_failed(["a"])
    history.note_failed(["a"])
    assert history.failures() == {"a": 2.0}
    now[0] = FORGIVEN_S
    assert history.failures() == {"a": 1.0}
    now[0] = 6 * FORGIVEN_S
    assert history.failures() == {}


def test_an_aggregate_has_multipliers_of_its_own() -> None:
    world = World(settings=SchedulingSettings(refresh_s=0))
    world.add_hosts(host("a", shared=8), host("b", shared=4))
    assert chosen(world.build(flavor(vcpus=1))) == ["a"]
    for name, value in (("last", "-1"), ("odd", "much")):
        world.define(
            "aggregate", name, hosts=["a"], metadata={"room_left_weight_multiplier": value}
        )
    assert [chosen(world.build(flavor(vcpus=1))) for _ in range(3)] == [["b"]] * 3


def test_filters_are_listed_by_name_and_the_physical_ones_always_hold() -> None:
    named = filters_named(["in_zone"])
    assert named[0] is in_zone
    assert set(named) == {in_zone, *PHYSICAL}
    world = World(settings=SchedulingSettings(filters=named))
    world.add_hosts(host("a"), beat=False)
    assert chosen(world.build()) == ["a"]
    assert refusal(world.build(flavor(root_gb=5000))).startswith("1 host: 1 lacks free disk")


@pytest.mark.parametrize("name", ["unheard_of", ""])
def test_an_unknown_name_is_refused_and_ours_are_listed(name: str) -> None:
    with pytest.raises(Rejected, match="ours are named, in_service") as refused:
        filters_named([name])
    assert refused.value.code == "filter_unknown"
    with pytest.raises(Rejected) as refused:
        weighers_named({name: 1.0}, SPREAD)
    assert refused.value.code == "weigher_unknown"


def only_b(_spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Only hosts called b."""
    yield Check("not_b", ("is not b", "are not b"), fleet.mask(["b"]))


def small_names(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Nobody in particular."""
    return 0.0


def test_a_third_party_adds_filters_and_weighers_by_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(group: str, name: str) -> tuple[EntryPoint, ...]:
        value = f"{__name__}:{name}"
        return (EntryPoint(name, value, group),) if name in ("only_b", "small_names") else ()

    monkeypatch.setattr(plugins, "entry_points", found)
    filters = filters_named(["only_b"])
    weighers = weighers_named({"small_names": 2.0}, SPREAD)
    assert ("small_names", 2.0) in [(weigher.__name__, many) for weigher, many in weighers]
    world = World(settings=SchedulingSettings(filters=filters, weighers=weighers))
    world.add_hosts(host("a"), host("b"))
    assert chosen(world.build()) == ["b"]
    assert refusal(world.build(host="a")) == (
        "2 hosts: 1 is not b, 1 is not a, which was asked for"
    )


def raises(_spec: RequestSpec, _fleet: Fleet) -> Iterator[Check]:
    raise ValueError("no such rack")


def one_for_all(_spec: RequestSpec, _fleet: Fleet) -> Iterator[Check]:
    yield Check("odd", ("is odd", "are odd"), np.ones(1, np.bool_))


def never_a_number(_spec: RequestSpec, _fleet: Fleet, rows: Numbers) -> Floats:
    return np.full(len(rows), np.nan)


def raises_too(_spec: RequestSpec, _fleet: Fleet, _rows: Numbers) -> Floats:
    raise KeyError("rack")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("filter", "raises", "filter raises raised ValueError: the scheduler"),
        ("filter", "one_for_all", "filter one_for_all answers wrongly: odd should say"),
        ("weigher", "never_a_number", "weigher never_a_number answers wrongly"),
        ("weigher", "raises_too", "weigher raises_too raised KeyError"),
    ],
)
def test_what_a_third_party_does_wrong_fails_the_decision_and_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, said: str
) -> None:
    def found(group: str, name: str) -> tuple[EntryPoint, ...]:
        return (EntryPoint(name, f"{__name__}:{name}", group),)

    monkeypatch.setattr(plugins, "entry_points", found)
    filters = filters_named([name] if kind == "filter" else ["in_service"])
    weighers = weighers_named({name: 1.0}, SPREAD) if kind == "weigher" else SPREAD
    world = World(settings=SchedulingSettings(filters=filters, weighers=weighers))
    world.add_hosts(host("a"), host("b"))
    assert refusal(world.build()).startswith(said)
    assert world.host("a").used == {}


@pytest.mark.parametrize("value", ["tests.nowhere:only_b", f"{__name__}:missing"])
def test_a_third_party_that_does_not_load_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(
        plugins, "entry_points", lambda group, name: (EntryPoint(name, value, group),)
    )
    with pytest.raises(Rejected, match=f"filters is only_b: its entry point {value} does not load"):
        filters_named(["only_b"])


def settings_of(variables: Mapping[str, str]) -> SchedulingSettings:
    return scheduling_settings(read_settings(variables))


def test_the_environment_names_filters_weighers_and_multipliers() -> None:
    settings = settings_of(
        {
            "CONDUCTOR_FILTERS": "named,in_service,has_amounts,has_numa_cells",
            "CONDUCTOR_WEIGHERS": "room_left=0,less_busy=2.5,few_instances=1",
        }
    )
    assert [iterable.__name__ for iterable in settings.filters] == [
        "named",
        "in_service",
        "has_amounts",
        "has_numa_cells",
    ]
    multipliers = dict(settings.weights)
    assert (multipliers[less_busy], multipliers[few_instances]) == (2.5, 1.0)
    assert room_left not in multipliers
    assert settings_of({}).filters == DEFAULT_FILTERS
    assert settings_of({}).weights == SPREAD


@pytest.mark.parametrize(
    ("name", "value"),
    [("WEIGHERS", "room_left"), ("WEIGHERS", "a=b"), ("FILTERS", "a b"), ("SCHEDULER_SUBSET", "0")],
)
def test_malformed_lists_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Rejected, match=f"CONDUCTOR_{name} is"):
        settings_of({f"CONDUCTOR_{name}": value})


def test_a_move_stays_in_its_cell_and_can_be_made_to_prefer_its_own_host() -> None:
    hosts = [host("a", shared=8), replace(host("b", shared=16), cell_id="cell2"), host("c")]
    fleet = Fleet(hosts, up=["a", "b", "c"])
    weighers = weighers_named({"own_host": 10.0}, SPREAD)
    wanted = spec(flavor(vcpus=1), source="c")
    for settings, first in (
        (SchedulingSettings(), "a"),
        (SchedulingSettings(weighers=weighers), "c"),
    ):
        found = select_host(wanted, fleet, settings, Fits())
        assert isinstance(found, Selection)
        assert found.host.name == first
        assert [removal.code for removal in found.removals] == ["other_cell"]


def hosts_drawn(seed: int | None, subset: int | None) -> list[str]:
    world = World(settings=SchedulingSettings(seed=seed, subset=subset))
    world.add_hosts(*(host(f"h{n}") for n in range(8)))
    return [chosen(world.build(flavor(vcpus=1)))[0] for _ in range(8)]


def test_one_of_the_best_is_drawn_by_the_seed_and_only_with_one() -> None:
    assert hosts_drawn(None, 4) == [f"h{n}" for n in range(8)]
    assert hosts_drawn(7, 1) == [f"h{n}" for n in range(8)]
    assert hosts_drawn(7, None) == [f"h{n}" for n in range(8)]
    assert hosts_drawn(7, 4) == hosts_drawn(7, 4)
    assert hosts_drawn(7, 4) != hosts_drawn(8, 4)


def test_a_draw_never_takes_a_host_of_a_worse_kind() -> None:
    world = World(settings=SchedulingSettings(strategy="pack", seed=3, subset=8))
    world.add_hosts(*(host(f"h{n}") for n in range(8)))
    first = chosen(world.build(flavor(vcpus=1)))
    assert [chosen(world.build(flavor(vcpus=1))) for _ in range(5)] == [first] * 5


@pytest.mark.parametrize(
    ("name", "roomy"),
    [
        ("cpus_left", host("b", shared=16)),
        ("memory_left", host("b", memory_mib=65_536)),
        ("disk_left", host("b", disk_gb=9_000)),
    ],
)
def test_a_single_resource_spreads_or_packs_by_its_multiplier(name: str, roomy: Host) -> None:
    for multiplier, best in ((1.0, "b"), (-1.0, "a")):
        only = SchedulingSettings(refresh_s=0, weighers=weighers_named({name: multiplier}, ()))
        world = World(settings=only)
        world.add_hosts(host("a"), roomy)
        assert chosen(world.build(flavor(vcpus=1))) == [best]


def test_a_move_may_prefer_its_own_deployment_cell() -> None:
    fleet = Fleet([replace(host("a"), cell_id="far"), host("b"), host("c")])
    moving = replace(spec(flavor(vcpus=1)), source="c")
    assert list(own_cell(moving, fleet, np.arange(3))) == [0.0, 1.0, 1.0]
    assert own_cell(spec(flavor(vcpus=1)), fleet, np.arange(3)) == 0.0


def test_metadata_may_name_the_weighers_that_there_are() -> None:
    assert set(WEIGHER_NAMES) == set(WEIGHERS)
