"""Shows the status of operations: in Flower, the result backend and the metrics."""

from __future__ import annotations

from conductor.operation_status import OperationStatus, arguments_of
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.metrics_exporter import Ends
from conductor.store import OperationRecord
from models.json_types import Json
from models.lifecycle import OperationState
from models.messages.internal import shown_arguments
from models.messages.requests import PREFIX
from tasks.flower.event_stream import EventStream
from tasks.flower.flower_events import given_up
from tasks.flower.operation_results import ResultShower, Shown, event_of


def show_status(
    events: EventStream, shower: ResultShower | None, ends: Ends, status: OperationStatus
) -> None:
    """Show an operation in Flower, and to whoever looks at its id in the result backend."""
    record = status.record
    ends.note(status)
    shown = Shown(
        operation_id=record.id,
        task=PREFIX + record.kind,
        state=record.state,
        result=_result_of(record),
        error=record.error,
        shown=shown_arguments(**arguments_of(status)),
        root_id=record.root_id,
        parent_id=record.parent_id,
        began_at=record.created_at,
        ended_at=record.ended_at,
    )
    if status.given_up is not None:
        why = (record.error or {}).get("message") or f"the operation went on: {record.state}"
        events.add([given_up(status.given_up, why)])
    if shower is not None:
        shower.show(shown)
    else:
        events.add([event_of(shown)])


def _result_of(record: OperationRecord) -> Json | None:
    definition = OPERATIONS.get(record.kind)
    if record.state is not OperationState.SUCCEEDED or definition is None:
        return None
    return definition.describe(definition.load(record.data))
