"""Sockets, cores and threads: preferred, greatest and best."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.cpu_topology import (
    UNLIMITED,
    CpuTopology,
    TopologyBounds,
    best_topology,
    topology_bounds,
)

Parts = tuple[int, int, int]
NAMES = ("sockets", "cores", "threads")
ANY: Parts = (UNLIMITED, UNLIMITED, UNLIMITED)


def bounds(
    flavor: Parts = (0, 0, 0),
    flavor_max: Parts = (0, 0, 0),
    image: Parts = (0, 0, 0),
    image_max: Parts = (0, 0, 0),
) -> tuple[Parts, Parts]:
    """Return the preferred and the greatest topology; 0 is not said."""
    specs = {f"hw:cpu_{name}": str(n) for name, n in zip(NAMES, flavor, strict=True)}
    specs |= {f"hw:cpu_max_{name}": str(n) for name, n in zip(NAMES, flavor_max, strict=True)}
    properties = {f"hw_cpu_{name}": n for name, n in zip(NAMES, image, strict=True)}
    properties |= {f"hw_cpu_max_{name}": n for name, n in zip(NAMES, image_max, strict=True)}
    found = topology_bounds(Flavor("f", 8, 512, extra_specs=specs), Image("", "", properties))
    return parts(found.preferred), parts(found.maximum)


def parts(topology: CpuTopology) -> Parts:
    return topology.sockets, topology.cores, topology.threads


def best(vcpus: int, wanted: Parts = (0, 0, 0), most: Parts = ANY, threads: bool = True) -> Parts:
    both = TopologyBounds(CpuTopology(*wanted), CpuTopology(*most))
    return parts(best_topology(vcpus, both, threads))


def test_what_nobody_says_is_no_preference_and_no_limit() -> None:
    assert bounds() == ((0, 0, 0), ANY)


def test_any_preference_of_the_image_replaces_all_of_the_flavors() -> None:
    """Check H3."""
    assert bounds(flavor=(2, 4, 1), image=(0, 2, 0)) == ((0, 2, 0), ANY)


def test_an_image_may_lower_a_maximum_but_not_raise_it() -> None:
    assert bounds(flavor_max=(8, 4, 0), image_max=(2, 0, 4))[1] == (2, 4, 4)
    with pytest.raises(Rejected) as refusal:
        bounds(flavor_max=(8, 4, 0), image_max=(2, 5, 0))
    assert refusal.value.code == "cpu_topology_conflict"
    assert refusal.value.key == "hw:cpu_max_cores"


def test_a_flavors_preference_above_a_maximum_is_dropped_as_a_whole() -> None:
    """Check H4."""
    assert bounds(flavor=(4, 2, 1), image_max=(2, 0, 0)) == ((0, 0, 0), (2, UNLIMITED, UNLIMITED))


def test_an_images_preference_above_a_maximum_is_refused() -> None:
    """Check H4."""
    for limits in ({"flavor_max": (0, 2, 0)}, {"image_max": (0, 2, 0)}):
        with pytest.raises(Rejected) as refusal:
            bounds(image=(1, 4, 1), **limits)
        assert refusal.value.code == "cpu_topology_above_maximum"
        assert refusal.value.key == "hw_cpu_cores"


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "", "9" * 30])
@pytest.mark.parametrize("name", ["cpu_sockets", "cpu_max_threads"])
def test_a_count_that_is_no_number_is_refused_by_its_key(name: str, text: str) -> None:
    flavor = Flavor("f", 8, 512, extra_specs={f"hw:{name}": text})
    with pytest.raises(Rejected) as refusal:
        topology_bounds(flavor, Image(""))
    assert (refusal.value.code, refusal.value.key) == (f"{name}_invalid", f"hw:{name}")
    image = Image("", "", {f"hw_{name}": text})
    with pytest.raises(Rejected) as refusal:
        topology_bounds(Flavor("f", 8, 512), image)
    assert (refusal.value.code, refusal.value.key) == (f"{name}_invalid", f"hw_{name}")


@pytest.mark.parametrize(
    ("vcpus", "wanted", "most", "expected"),
    [
        (8, (0, 0, 0), ANY, (8, 1, 1)),
        (8, (0, 0, 0), (2, 2, 8), (2, 2, 2)),
        (8, (0, 0, 2), ANY, (4, 1, 2)),
        (8, (2, 0, 0), ANY, (2, 4, 1)),
        (8, (2, 2, 2), ANY, (2, 2, 2)),
        (8, (3, 2, 0), ANY, (4, 2, 1)),
        (7, (0, 0, 0), (4, 8, 1), (1, 7, 1)),
        (8, (0, 0, 0), (4, UNLIMITED, UNLIMITED), (4, 2, 1)),
        (1, (0, 0, 0), ANY, (1, 1, 1)),
    ],
)
def test_the_best_topology_meets_most_preferences_then_has_most_sockets_times_cores(
    vcpus: int, wanted: Parts, most: Parts, expected: Parts
) -> None:
    """Check H5; cases N56 and K13."""
    assert best(vcpus, wanted, most) == expected


def test_without_threads_every_core_has_one() -> None:
    assert best(8, (0, 0, 2), threads=False) == (8, 1, 1)
    with pytest.raises(Rejected):
        best(8, most=(2, 2, 8), threads=False)


def test_limits_that_no_topology_meets_are_refused() -> None:
    with pytest.raises(Rejected) as refusal:
        best(7, most=(2, 2, 2))
    assert (refusal.value.code, refusal.value.key) == ("cpu_topology_impossible", "vcpus")


few = st.integers(0, 9)
triple = st.tuples(few, few, few)


@given(st.integers(1, 40), triple, triple, st.booleans())
def test_the_best_topology_is_the_first_of_all_in_order(
    vcpus: int, wanted: Parts, most: Parts, threads: bool
) -> None:
    most = tuple(n or UNLIMITED for n in most)  # type: ignore[assignment]  # three they stay
    counts = [n for n in range(1, vcpus + 1) if vcpus % n == 0]
    every = [
        (s, c, t)
        for s, c, t in product(counts, counts, counts if threads else [1])
        if s * c * t == vcpus and s <= most[0] and c <= most[1] and t <= most[2]
    ]

    def rank(found: Parts) -> tuple[int, int, int]:
        met = sum(a == b for a, b in zip(found, wanted, strict=True))
        return met, found[0] * found[1], found[0]

    try:
        assert best(vcpus, wanted, most, threads) == max(every, key=rank)
    except Rejected:
        assert not every
