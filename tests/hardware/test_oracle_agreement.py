"""The fitter against an exhaustive search that shares nothing with it.

`make prove` runs this with fifty times the examples: 200,000 cases.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.cases.fit_cases import answer_fit
from tests.hardware.generator import random_case
from tests.hardware.prove import prove

CASES_A_SEED = 40


@given(st.integers(0, 2**62))
def test_the_fitter_agrees_with_exhaustion_and_its_placements_break_no_rule(seed: int) -> None:
    assert sum(prove(CASES_A_SEED, seed).values()) == CASES_A_SEED


def test_the_generator_makes_both_kinds_of_cases() -> None:
    tally = prove(2_000, seed=11)
    assert tally["fit"] > 400
    assert tally["no fit"] > 400


def shuffled(value: Any, dice: Random) -> Any:
    """Return the same JSON with object keys, and lists that mean sets, in another order."""
    if isinstance(value, dict):
        keys = dice.sample(list(value), len(value))
        mixed = {key: shuffled(value[key], dice) for key in keys}
        for name in ("cpuset", "pcpuset", "pinned_cpus", "siblings", "physnets"):
            if name in mixed:
                mixed[name] = dice.sample(mixed[name], len(mixed[name]))
        return mixed
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


@given(st.integers(0, 2**62))
def test_the_order_of_keys_and_of_sets_decides_nothing(seed: int) -> None:
    dice = Random(seed)
    for _ in range(5):
        case = random_case(dice)
        answer = answer_fit(json.dumps(case), 1)
        assert answer_fit(json.dumps(shuffled(case, dice)), 1) == answer
