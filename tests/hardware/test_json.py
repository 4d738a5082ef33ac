"""Hardware values survive the way through JSON."""

from __future__ import annotations

import json
import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.messages.hardware.hardware_json import (
    flavor_from_json,
    flavor_from_row,
    flavor_to_json,
    guest_from_json,
    guest_to_json,
    host_from_json,
    host_from_row,
    host_to_json,
    image_from_json,
    image_from_row,
    image_to_json,
)
from tests.hardware.generator import random_case

FLAVOR = Flavor("f", 2, 1024, 10, 5, 512, {"hw:numa_nodes": "2", "hw:cpu_policy": "mixed"})
IMAGE = Image("i", "name", {"hw_numa_cpus": [[0], [1, 2]], "traits_required": ["A"], "n": 1})


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(st.integers(0, 2**62))
def test_hosts_and_guests_come_back_equal(seed: int) -> None:
    case = random_case(Random(seed))
    host = host_from_json(case["host"])
    assert host_from_json(through_json(host_to_json(host))) == host
    assert host_from_row(through_json(host_to_json(host))) == host
    guest = guest_from_json(case["guest"])
    assert guest_from_json(through_json(guest_to_json(guest))) == guest


def test_flavors_and_images_come_back_equal() -> None:
    for flavor in (FLAVOR, flavor_from_json(flavor_to_json(FLAVOR))):
        assert flavor_from_row(through_json(flavor_to_json(flavor))) == FLAVOR
    for image in (IMAGE, image_from_json(image_to_json(IMAGE))):
        assert image_from_row(through_json(image_to_json(image))) == IMAGE


def test_values_that_hold_mappings_can_be_keys_and_travel_between_processes() -> None:
    for value in (FLAVOR, IMAGE):
        assert {value: 1}[pickle.loads(pickle.dumps(value))] == 1
    backwards = Flavor("f", 2, 1024, 10, 5, 512, dict(reversed(list(FLAVOR.extra_specs.items()))))
    assert hash(backwards) == hash(FLAVOR)


def test_extra_specs_may_be_json_scalars() -> None:
    flavor = flavor_from_json({"vcpus": 1, "memory_mb": 1, "extra_specs": {"a": 2, "b": True}})
    assert dict(flavor.extra_specs) == {"a": "2", "b": "true"}


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"vcpus": 1}, "memory_mb"),
        ({"vcpus": "1", "memory_mb": 1}, "vcpus"),
        ({"vcpus": 1, "memory_mb": 1, "cores": 2}, "cores"),
    ],
)
def test_a_wrong_flavor_is_refused_by_field(body: dict[str, Any], key: str) -> None:
    with pytest.raises(Rejected) as refusal:
        flavor_from_json(body)
    assert refusal.value.key == key
