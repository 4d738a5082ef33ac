"""Lines that nobody means: each is answered, none ends the run, none costs more than it may."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.cases.fit_cases import answer_fit
from conductor.cli.cases.guest_cases import answer_guest
from conductor.cli.cases.host_config_cases import answer_host_config
from conductor.cli.cases.json_lines import Answer, Line, answer_lines
from tests.hardware.generator import random_case
from tests.hardware.test_refused_requirements import REJECTIONS

Asked = Callable[[Line, int], Answer]

NUMBERS = [0, -1, 0.5, 1.0, 2**31, 2**64, 10**30, 1e308, float("nan"), float("inf")]
TEXTS = ["", " ", "x", "-1", "^0", "0-65535", "0-99999", "\x00", "é", "٣", "1_0", "+1", "9" * 5000]
OTHERS = [None, True, False, [], [[]], [-1], [None], ["a"], {}, {"a": 1}, [[[[[[]]]]]]]
ODD: list[Any] = [*NUMBERS, *TEXTS, *OTHERS]
SPECS = sorted({key for _, _, specs, _ in REJECTIONS for key in specs} | {"hw:numa_cpus.", ""})
PROPERTIES = sorted(
    {key for _, _, _, image in REJECTIONS for key in image}
    | {key.replace(":", "_", 1) for key in SPECS}
)

FLAVOR = '"flavor": {"vcpus": 2, "memory_mb": 512}'
LONG = "9" * 5000
DEEP = "[" * 5000 + "]" * 5000


def answers(ask: Asked, line: Line) -> Any:
    """Return the answer as its reader sees it; fails unless it is one line of JSON."""
    out = io.StringIO()
    answer_lines([line], out, ask)
    text = out.getvalue()
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=pytest.fail)


def mutated(dice: Random, value: Any) -> Any:
    """Return the JSON with odd values, absent keys and doubled items here and there."""
    if dice.random() < 0.05:
        return dice.choice(ODD)
    if isinstance(value, dict):
        return {k: mutated(dice, v) for k, v in value.items() if dice.random() > 0.02}
    if isinstance(value, list):
        items = [mutated(dice, item) for item in value]
        return items + items[:1] if dice.random() < 0.03 else items
    return value


def odd_flavor_and_image(dice: Random) -> dict[str, Any]:
    specs = {dice.choice(SPECS): dice.choice(ODD[:23]) for _ in range(dice.randint(0, 5))}
    properties = {dice.choice(PROPERTIES): dice.choice(ODD) for _ in range(dice.randint(0, 4))}
    flavor = {"vcpus": dice.choice([1, 4, 4096]), "memory_mb": 4096, "extra_specs": specs}
    return {"flavor": flavor, "image": {"properties": properties}}


@given(st.integers(0, 2**62))
def test_whatever_a_line_holds_it_is_answered(seed: int) -> None:
    dice = Random(seed)
    for _ in range(10):
        case = random_case(dice)
        assert {"placement", "error"} & answers(answer_fit, json.dumps(mutated(dice, case))).keys()
        case = odd_flavor_and_image(dice)
        assert {"guest", "error"} & answers(answer_guest, json.dumps(case)).keys()
        odd = {key: dice.choice(ODD) for key in ("id", "shared", "dedicated", "legacy")}
        pages = [{key: dice.choice(ODD) for key in ("node", "size", "count")}]
        answers(answer_host_config, json.dumps({**odd, "reserved_huge_pages": pages}))


@given(st.integers(0, 2**62))
def test_the_order_of_keys_decides_nothing_about_a_guest(seed: int) -> None:
    case = odd_flavor_and_image(Random(seed))
    forwards = answers(answer_guest, json.dumps(case))
    for mapping in (case["flavor"]["extra_specs"], case["image"]["properties"]):
        for key in reversed(list(mapping)):
            mapping[key] = mapping.pop(key)
    assert answers(answer_guest, json.dumps(case)) == forwards


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        "{" + FLAVOR + ', "image": {"properties": {"x": ' + DEEP + "}}}",
        '{"id": ' + DEEP + "}",
        "{" + FLAVOR + ', "image": {"properties": {"hw_cpu_sockets": ' + LONG + "}}}",
        '{"flavor": {"vcpus": true, "memory_mb": 512}}',
        '{"flavor": {"vcpus": 2.0, "memory_mb": 512}}',
        '{"flavor": {"vcpus": "2", "memory_mb": 512}}',
        '{"flavor": {"vcpus": NaN, "memory_mb": 512}}',
        '{"flavor": {"vcpus": 2, "memory_mb": 512, "name": "\\ud800"}}',
        "\ufeff{" + FLAVOR + "}",
        b"\xff\xfe{}",
        b"\x00",
    ],
    ids=range(12),
)
def test_a_line_that_is_no_case_is_malformed(line: Line) -> None:
    for ask in (answer_fit, answer_guest):
        assert answers(ask, line)["error"]["line"] == 1


@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity"])
def test_an_id_that_json_cannot_write_is_given_back_as_null(number: str) -> None:
    assert answers(answer_guest, f'{{"id": {number}, {FLAVOR}}}')["id"] is None
    assert answers(answer_guest, f'{{"id": {number}}}')["id"] is None


def test_a_cpu_number_beyond_any_host_is_refused_before_it_allocates() -> None:
    image = {"hw_numa_nodes": 1, "hw_numa_cpus": [[10**12]], "hw_numa_mem": [512]}
    line = json.dumps({"flavor": {"vcpus": 2, "memory_mb": 512}, "image": {"properties": image}})
    refused = answers(answer_guest, line)["rejected"]["numa"]
    assert (refused["code"], refused["key"]) == ("numa_cpus_invalid", "hw_numa_cpus")


def test_more_numa_cells_than_any_machine_has_are_refused() -> None:
    flavor = {"vcpus": 4096, "memory_mb": 4096, "extra_specs": {"hw:numa_nodes": "4096"}}
    refused = answers(answer_guest, json.dumps({"flavor": flavor}))["rejected"]["numa"]
    assert (refused["code"], refused["key"]) == ("numa_nodes_invalid", "hw:numa_nodes")
    cells = [{"id": number, "cpuset": [number], "memory": 1} for number in range(1025)]
    assert "error" in answers(answer_fit, json.dumps({"host": {"cells": cells}, "flavor": flavor}))


def test_many_device_requests_and_pools_are_decided() -> None:
    cells = [{"id": n, "cpuset": [2 * n, 2 * n + 1], "memory": 4096} for n in range(16)]
    pools = [{"numa_node": n % 16, "count": 1, "product_id": str(n)} for n in range(300)]
    requests = [
        {"id": str(n), "spec": [{"product_id": str(n)}, {"product_id": str(n + 1)}]}
        for n in range(200)
    ]
    case = {
        "host": {"cells": cells, "pci_pools": pools},
        "flavor": {"vcpus": 16, "memory_mb": 4096, "extra_specs": {"hw:numa_nodes": "16"}},
        "pci_requests": requests,
    }
    assert answers(answer_fit, json.dumps(case))["placement"]
    case["flavor"] = {"vcpus": 16, "memory_mb": 4096, "extra_specs": {"hw:numa_nodes": "2"}}
    assert answers(answer_fit, json.dumps(case))["placement"] is None


def test_device_requests_that_push_each_other_along_a_long_chain_are_served() -> None:
    pools = [{"numa_node": 0, "count": 1, "product_id": str(n)} for n in range(256)]
    wants = [[n, n + 1] for n in range(255)] + [[0]]
    requests = [{"spec": [{"product_id": str(number)} for number in two]} for two in wants]
    case = {
        "host": {"cells": [{"id": 0, "cpuset": [0], "memory": 4096}], "pci_pools": pools},
        "flavor": {"vcpus": 1, "memory_mb": 4096, "extra_specs": {"hw:numa_nodes": "1"}},
        "pci_requests": requests,
    }
    assert answers(answer_fit, json.dumps(case))["placement"]
    case["pci_requests"] = requests * 2
    assert "error" in answers(answer_fit, json.dumps(case))
