"""The page that follows one build names the calls which a build really makes, in their order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from models.lifecycle import OperationState
from tests.environment.variables import CHECKOUT
from tests.operations.world import PINNED, World

PAGE = CHECKOUT / "docs" / "architecture.md"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)


def calls_of_a_build() -> list[tuple[str, str]]:
    """Return file and function of every call of ours while one instance is built."""
    world = World(hosts=1)
    calls: list[tuple[str, str]] = []
    root = f"{CHECKOUT}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            calls.append((code.co_filename.removeprefix(root), code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        operation = world.build(PINNED)
        world.settle()
    finally:
        sys.setprofile(before)
    assert world.ended(operation) is OperationState.SUCCEEDED
    return calls


def test_a_build_makes_the_calls_of_the_page_in_their_order() -> None:
    rows = ROW.findall(PAGE.read_text())
    calls = iter(calls_of_a_build())
    assert len(rows) > 20
    for row in rows:
        assert row in calls, "this call is not made, or not at this place"


def test_the_rows_name_files_that_exist() -> None:
    assert all(Path(CHECKOUT, path).is_file() for path, _ in ROW.findall(PAGE.read_text()))
