"""What commands make of moves: which failures are mended, and how far a copy is."""

from __future__ import annotations

import pytest

from conductor.cli.failed_operations import mended_since
from conductor.cli.requests import wait_display
from conductor.cli.requests.wait_display import snapshot_of
from conductor.store.memory.memory_store import MemoryStore
from models.lifecycle import OperationState
from tests.contracts.store import records

FAILED, SUCCEEDED = OperationState.FAILED, OperationState.SUCCEEDED
RESIZE = "resize_instance"


def test_a_failure_is_mended_by_a_replay_that_succeeded_however_many_failed_before() -> None:
    store = MemoryStore()
    with store.begin() as uow:
        for id_, replay_of, state, kind in (
            ("a", None, FAILED, RESIZE),
            ("a1", "a", FAILED, RESIZE),
            ("a2", "a1", SUCCEEDED, RESIZE),
            ("b", None, FAILED, RESIZE),
            ("b1", "b", FAILED, RESIZE),
            ("c", None, FAILED, RESIZE),
            ("c1", "c", SUCCEEDED, "replay_operation"),
            ("d", None, FAILED, RESIZE),
            ("d1", "d", OperationState.RUNNING, RESIZE),
        ):
            uow.operations.add(
                records.an_operation(id_, kind=kind, state=state, replay_of=replay_of)
            )
        assert mended_since(uow, ["a", "a1", "b", "b1", "c", "d"]) == {"a", "a1"}


def test_who_waits_for_a_live_migration_hears_how_far_its_copy_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = MemoryStore()
    with store.begin() as uow:
        running = OperationState.RUNNING
        uow.operations.add(records.an_operation("x", kind="live_migrate_instance", state=running))
        assert snapshot_of(uow, "x").copied is None
        uow.migrations.add(records.a_migration(operation_id="x", progress_percent=37))
        snapshot = snapshot_of(uow, "x")
    assert snapshot.copied == 37
    watcher = wait_display._Lines()
    watcher.show(snapshot)
    watcher.show(snapshot)
    assert capsys.readouterr().err == "copied 37 %\n"
