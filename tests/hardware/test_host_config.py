"""A host's configured CPU sets and reserved pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conductor.cli.cases.host_config_cases import answer_host_config

Json = dict[str, Any]


def configured(**settings: Any) -> Json:
    return answer_host_config(json.dumps({"id": "h", **settings}), 1)


def refusal(**settings: Any) -> tuple[str, str]:
    rejected = configured(**settings)["rejected"]
    assert rejected["message"].startswith(rejected["key"])
    return rejected["code"], rejected["key"]


def test_a_host_without_settings_sets_nothing_aside() -> None:
    nothing = {"shared": None, "dedicated": None, "legacy": None, "reserved_huge_pages": []}
    assert configured() == {"id": "h", **nothing}
    assert configured(shared="", dedicated=None, legacy="") == {"id": "h", **nothing}


def test_each_set_is_its_cpus() -> None:
    """What is in neither set is nobody's."""
    answer = configured(shared="0-3,24-27", dedicated="8-23,32-47")
    assert answer["shared"] == [0, 1, 2, 3, 24, 25, 26, 27]
    assert len(answer["dedicated"]) == 32
    assert configured(legacy="4-12,^8,15")["legacy"] == [4, 5, 6, 7, 9, 10, 11, 12, 15]


@pytest.mark.parametrize("name", ["shared", "dedicated", "legacy"])
def test_a_set_that_its_exclusions_leave_empty_is_refused(name: str) -> None:
    """Check H1."""
    assert refusal(**{name: "1,^0-4"}) == ("cpu_set_empty", name)
    assert refusal(**{name: " , "}) == ("cpu_set_empty", name)
    assert refusal(**{name: "1-x"}) == ("cpu_set_invalid", name)


def test_a_cpu_in_both_sets_is_refused_by_its_number() -> None:
    """Cases K22 and K25."""
    settings = {"dedicated": "2-11,13-23,26-35,38-47", "shared": "1,13,25,37"}
    assert refusal(**settings) == ("cpu_in_both_sets", "dedicated")
    assert "CPU 13 " in configured(**settings)["rejected"]["message"]
    settings = {"dedicated": "4-12,^8,15", "shared": "2-10,^5,14"}
    assert refusal(**settings) == ("cpu_in_both_sets", "dedicated")


def test_reserved_pages_are_listed_by_node_and_size_in_kib() -> None:
    pages = [
        {"node": "1", "size": "1GB", "count": 2},
        {"node": 0, "size": "2048", "count": "64"},
        {"node": 0, "size": 4, "count": 0},
    ]
    assert configured(reserved_huge_pages=pages)["reserved_huge_pages"] == [
        {"node": 0, "size": 4, "count": 0},
        {"node": 0, "size": 2048, "count": 64},
        {"node": 1, "size": 1048576, "count": 2},
    ]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"node": None}, "reserved_huge_pages.1.node"),
        ({"node": "zero"}, "reserved_huge_pages.1.node"),
        ({"node": -1}, "reserved_huge_pages.1.node"),
        ({"node": True}, "reserved_huge_pages.1.node"),
        ({"size": "2 parsecs"}, "reserved_huge_pages.1.size"),
        ({"size": 0}, "reserved_huge_pages.1.size"),
        ({"size": [2048]}, "reserved_huge_pages.1.size"),
        ({"count": -1}, "reserved_huge_pages.1.count"),
        ({"count": 1.5}, "reserved_huge_pages.1.count"),
        ({"node": 0}, "reserved_huge_pages.1"),
    ],
)
def test_reserved_pages_that_mean_nothing_are_refused_by_entry(change: Json, key: str) -> None:
    pages = [{"node": 0, "size": 2048, "count": 1}, {"node": 1, "size": 2048, "count": 1, **change}]
    assert refusal(reserved_huge_pages=pages) == ("reserved_huge_pages_invalid", key)


def test_a_line_of_the_wrong_shape_is_malformed() -> None:
    assert configured(shared=[1, 2])["error"]["line"] == 1
    assert configured(reserved_huge_pages={"node": 0})["error"]["line"] == 1
