"""Compare the fitter with the oracle on as many random cases as wanted.

python -m tests.hardware.prove --cases 200000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from random import Random
from typing import Any

from conductor.cli.cases.fit_cases import answer_fit
from tests.hardware.generator import random_case
from tests.hardware.oracle import first_valid_assignment, violations


def disagreement(case: dict[str, Any], expected: tuple[int, ...] | None) -> str | None:
    """Return how the fitter's answer to a case is wrong, None when it is right."""
    answer = answer_fit(json.dumps(case), 1)
    if "placement" not in answer:
        return f"no answer: {answer}"
    if answer["placement"] is None:
        pairs = len(case["guest"]["cells"]) * len(case["host"]["cells"])
        if expected is not None:
            return f"refused, but {expected} is valid: {answer['misfit']}"
        return None if len(answer["misfit"]["cells"]) == pairs else "a pair has no reason"
    chosen = tuple(cell["host_cell"] for cell in answer["placement"]["cells"])
    if expected is None:
        return f"accepted on {chosen}, but nothing is valid"
    broken = violations(case, answer["placement"], answer["host_after"])
    if broken:
        return "; ".join(broken)
    return None if chosen == expected else f"chose {chosen}, but {expected} comes first"


def prove(cases: int, seed: int) -> Counter[str]:
    """Compare on random cases; return how many fit and not. Raises AssertionError on the first."""
    dice = Random(seed)
    tally: Counter[str] = Counter()
    for _ in range(cases):
        case = random_case(dice)
        expected = first_valid_assignment(case)
        wrong = disagreement(case, expected)
        assert wrong is None, f"{wrong}\n{json.dumps(case)}"
        tally["fit" if expected else "no fit"] += 1
    return tally


def main() -> int:
    """Run the proof and print the tally."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=200_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    began = time.monotonic()
    tally = prove(chosen.cases, chosen.seed)
    took = f"in {time.monotonic() - began:.0f} s, {time.process_time():.0f} s of CPU"
    sys.stdout.write(f"{chosen.cases} cases agree, {took}: {dict(tally)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
