"""One language of conditions, wherever a flavor compares with what is said of hosts."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.hardware.requirements.spec_operators import condition_of

KEY = "capabilities:x"


@pytest.mark.parametrize(
    ("text", "meets", "misses"),
    [
        ("ssd", ["ssd"], ["hdd", "SSD", "ssd2"]),
        ("s== ssd", ["ssd"], ["hdd"]),
        ("s!= hdd", ["ssd"], ["hdd"]),
        ("s>= b", ["b", "c"], ["a"]),
        ("s<= b", ["a", "b"], ["c"]),
        ("s> b", ["c"], ["b"]),
        ("s< b", ["a"], ["b"]),
        ("= 4", ["4", "5.5"], ["3", "many"]),
        ("== 4", ["4", "4.0"], ["5", "four"]),
        ("!= 4", ["5"], ["4", "4.0", "four"]),
        (">= 10", ["10", "100"], ["9", ""]),
        ("<= 10", ["9"], ["100"]),
        ("<or> a <or> b c", ["a", "b c"], ["b", "ab"]),
        ("<in> sse", ["sse4", "x sse"], ["avx"]),
        ("<all-in> aes mmx", ["aes, mmx"], ["aes", "mmx"]),
        ("<all-in> aes <all-in> mmx", ["mmx aes"], ["aes"]),
    ],
)
def test_operators_are_those_of_the_field(text: str, meets: list[str], misses: list[str]) -> None:
    condition = condition_of(KEY, text)
    assert all(condition.holds((value,)) for value in meets)
    assert not any(condition.holds((value,)) for value in misses)


def test_of_several_values_one_must_meet_it_and_none_break_a_negative_one() -> None:
    assert condition_of(KEY, "<in> ss").holds(("hdd", "ssd"))
    assert not condition_of(KEY, "s!= hdd").holds(("hdd", "ssd"))
    assert condition_of(KEY, "<all-in> aes mmx").holds(("aes", "mmx"))
    for text in ("ssd", "s!= ssd", ">= 4", "<in> s", "<all-in> s"):
        assert not condition_of(KEY, text).holds(())


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "s==", "<or>", "<or> a <or>", "<in>", "<all-in>", ">= many", "= nan", "== xen"),
        *("<any> a", "> 4", "< 4", "s= a", "=> 4", "!== 4", "<> 4"),
    ],
)
def test_a_malformed_condition_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        condition_of(KEY, text)
    assert (caught.value.code, caught.value.key) == ("extra_spec_invalid", KEY)
    assert caught.value.message.startswith(f"{KEY} is ")
