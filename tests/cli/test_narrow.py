"""At 80 columns a list still says what each row is: long texts give way, not names and states."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from conductor.cli.commands import flavors, instances, migrations
from conductor.cli.rendering.render_operation import OPERATION_COLUMNS
from conductor.cli.rendering.text_tables import Column, key, table_of

ID = "5f0c9a1e-7f1b-4c1e-9d52-0a4f3f0d8b11"
LONG = "none of 3 hosts takes it: 2 lack free dedicated CPUs (need 8, best 4), 1 is down " * 5
INSTANCE = {
    "id": ID,
    "name": "database-replica-12",
    "state": "shelved_offloaded",
    "task_state": "shelving_offloading",
    "host": "rack1-07",
    "flavor": {"name": "pinned-4-large-pages", "vcpus": 4, "memory_mb": 16384},
    "fault": {"message": LONG},
}
OPERATION = {
    "id": ID,
    "kind": "live_migrate_instance",
    "state": "SUCCEEDED",
    "created_at": "2026-01-31T12:00:00.123Z",
    "ended_at": "2026-01-31T12:00:10.123Z",
    "step": "prepare_target_again",
    "error": {"message": LONG},
    "asked": None,
}
MOVE = {
    "id": ID,
    "instance_id": ID,
    "kind": "live-migration",
    "state": "finished",
    "source": "rack1-07",
    "target": "rack2-03",
    "created_at": "2026-01-31T12:00:00.123Z",
}
FLAVOR = {
    "name": "pinned-4-large-pages",
    "vcpus": 4,
    "memory_mb": 16384,
    "root_gb": 20,
    "ephemeral_gb": 0,
    "swap_mb": 0,
    "extra_specs": {f"hw:numa_cpus.{n}": "0-3" for n in range(8)},
}
HEALTH = {"name": "conductors", "state": "away", "detail": LONG}
REPLAYED = {"old": ID, "new": ID, "outcome": f"refused: {LONG}"}
OUTCOMES = [(name, key(name)) for name in REPLAYED]
FINDINGS = [(name, key(name)) for name in HEALTH]


def printed(row: Any, columns: Sequence[Column], width: int, *, fold: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    console.print(table_of([row, row], columns, fold=fold))
    return out.getvalue()


LISTS: dict[str, tuple[Any, Sequence[Column], tuple[str, ...]]] = {
    "instances": (
        INSTANCE,
        instances._COLUMNS,
        (ID[:8], "database-replica-12", "shelved_offloaded", "rack1-07"),
    ),
    "operations": (
        OPERATION,
        OPERATION_COLUMNS,
        (ID[:8], "live_migrate_instance", "SUCCEEDED", "12:00:00"),
    ),
    "migrations": (
        MOVE,
        migrations._COLUMNS,
        (ID[:8], "live-migration", "finished", "rack1-07", "rack2-03"),
    ),
    "flavors": (FLAVOR, flavors._KIND.columns, ("pinned-4-large-pages", "16384")),
    "health": (HEALTH, FINDINGS, ("conductors", "away", "none of 3 hosts takes it")),
    "replays": (REPLAYED, OUTCOMES, (ID[:8], "refused: none of 3 hosts")),
}


@pytest.mark.parametrize("name", LISTS)
def test_at_80_columns_a_row_keeps_what_it_is_known_by(name: str) -> None:
    row, columns, kept = LISTS[name]
    lines = printed(row, columns, 80).splitlines()
    assert len(lines) == 3, "one line a row"
    assert all(len(line) <= 80 for line in lines)
    assert all(text in lines[1] for text in kept), lines


@pytest.mark.parametrize("name", LISTS)
def test_where_there_is_room_nothing_is_cut(name: str) -> None:
    row, columns, _ = LISTS[name]
    text = printed(row, columns, 1000)
    assert "…" not in text
    assert ID[:8] not in text or ID in text


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("name", LISTS)
def test_no_line_is_longer_than_the_terminal(name: str, width: int) -> None:
    row, columns, _ = LISTS[name]
    assert all(len(line) <= width for line in printed(row, columns, width).splitlines())


def test_where_a_text_can_be_read_nowhere_else_it_goes_on_below() -> None:
    text = printed(REPLAYED, OUTCOMES, 80, fold=True)
    words = [word for word in text.split() if word not in ("old", "new", "outcome", ID[:8])]
    assert " ".join(words) == f"refused: {LONG}refused: {LONG}".strip()
