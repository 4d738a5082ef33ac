"""Writes BENCHMARKS.md from what `make bench` left in `.benchmarks/`: no figure is typed by hand.

python -m tests.benchmarks.page > BENCHMARKS.md
"""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks.report import RESULTS, number

_HEAD = """# Benchmarks

Printed by `make bench`, written by `python -m tests.benchmarks.page`. Ratios are taken inside
one run; absolute figures belong to the machine named above each table, its load average
included: a busy machine measures others' work too.
"""


def page() -> str:
    """Return the page."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return "\n".join([_HEAD, *(_section(item) for item in found if "figures" in item)])


def _section(result: dict[str, Any]) -> str:
    lines = [
        f"## {result['benchmark']}",
        "",
        f"{result['machine']}, {result['at'][:10]}",
        "",
        "| figure | value | unit | goal |",
        "|---|---:|---|---|",
    ]
    lines += [
        f"| {item['name']} | {number(item['value'])} | {item['unit']} | {item['goal']} |"
        for item in result["figures"]
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")
