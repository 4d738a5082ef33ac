"""What other services see of an operation: its `AsyncResult` in Redis, and its task in Flower.

Apart from the work on purpose: states are handed over and written by a thread of their own, so a
result backend that is away delays what is shown and nothing else.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from celery import Celery
from redis.exceptions import RedisError, WatchError

from models.lifecycle import OperationState
from tasks.flower.event_stream import EventStream
from tasks.message_validation import fault_text

SUCCESS, FAILURE = "SUCCESS", "FAILURE"

_BATCH = 100
_LOOK = 500
_KEPT = 20_000
_RETRY_S = 1.0
_TIMEOUT_S = 3.0
_EXPIRE_S = 86_400
_READY = (SUCCESS, FAILURE, "REVOKED")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is to be seen of an operation: its state, at the end with a result or an error.

    `error` is a fault as `ConductorError.to_json` writes it; `shown` stands for the arguments.
    Times are Unix seconds.
    """

    operation_id: str
    task: str
    state: OperationState
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    shown: str = ""
    root_id: str | None = None
    parent_id: str | None = None
    began_at: float | None = None
    ended_at: float | None = None


class ResultShower:
    """Shows operations; the newest state of each is what counts, and an end is never overwritten.

    While Redis is away at most 20,000 operations wait, and those that still run are dropped first.
    """

    def __init__(self, result_url: str, events: EventStream | None = None) -> None:
        """Write to the Redis of `result_url`; tell `events` too."""
        app = Celery("results", backend=result_url, set_as_current=False, fixups=[])
        app.conf.update(redis_socket_timeout=_TIMEOUT_S, redis_socket_connect_timeout=_TIMEOUT_S)
        self._backend: Any = app.backend
        self._events = events
        self._changed = threading.Condition()
        self._running: OrderedDict[str, Shown] = OrderedDict()
        self._ended: OrderedDict[str, Shown] = OrderedDict()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)
        self._thread.start()

    def show(self, shown: Shown) -> None:
        """Take a state to be shown; never blocks, never fails."""
        with self._changed:
            self._keep(shown)
            self._changed.notify()
        if self._events is not None:
            self._events.add([event_of(shown)])

    def unshown(self, operation_ids: Sequence[str]) -> list[str]:
        """Return those of which no end is shown, or about to be; none while Redis is away."""
        unshown: list[str] = []
        try:
            for start in range(0, len(operation_ids), _LOOK):
                unshown += self._without_end(operation_ids[start : start + _LOOK])
        except RedisError as error:
            _log.info("results cannot be looked at for now", reason=str(error))
            return []
        with self._changed:
            return [name for name in unshown if name not in self._ended]

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, for `timeout_s` at most, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _keep(self, shown: Shown) -> None:
        name = shown.operation_id
        if shown.state.ended:
            self._running.pop(name, None)
            self._ended[name] = shown
        elif name not in self._ended:
            self._running[name] = shown
        if len(self._running) + len(self._ended) > _KEPT:
            (self._running or self._ended).popitem(last=False)

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._write(batch)
            except RedisError as error:
                _log.info("results are not shown for now", waiting=len(batch), reason=str(error))
                if not self._put_back(batch):
                    return
            except Exception:  # noqa: BLE001  # one bad state must not end the showing of others
                _log.exception("states are not shown", operations=[s.operation_id for s in batch])

    def _next(self) -> list[Shown]:
        """Return what to write next, or nothing when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._ended or self._running)
            batch: list[Shown] = []
            for waiting in (self._ended, self._running):
                while waiting and len(batch) < _BATCH:
                    batch.append(waiting.popitem(last=False)[1])
            return batch

    def _put_back(self, batch: Sequence[Shown]) -> bool:
        """Keep what was not written unless something newer came; wait; say whether to go on."""
        with self._changed:
            for shown in batch:
                newer = shown.operation_id in self._running or shown.operation_id in self._ended
                if not newer:
                    self._keep(shown)
            self._changed.wait_for(lambda: self._stopping, _RETRY_S)
            return not self._stopping

    def _write(self, batch: Sequence[Shown]) -> None:
        """Write a batch in one transaction; other processes show the same operations."""
        client: Any = self._backend.client
        keys = [self._backend.get_key_for_task(shown.operation_id) for shown in batch]
        with client.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(*keys)
                    known = pipe.mget(keys)
                    pipe.multi()
                    for key, shown, before in zip(keys, batch, known, strict=True):
                        if before is None or not self._is_end(before):
                            value = self._backend.encode(_meta(shown))
                            pipe.set(key, value, ex=_EXPIRE_S)
                            pipe.publish(key, value)
                    pipe.execute()
                except WatchError:
                    continue
                return

    def _without_end(self, operation_ids: Sequence[str]) -> list[str]:
        keys = [
            self._backend.get_key_for_task(operation_identifier)
            for operation_identifier in operation_ids
        ]
        known = self._backend.client.mget(keys)
        pairs = zip(operation_ids, known, strict=True)
        return [pair for pair, value in pairs if value is None or not self._is_end(value)]

    def _is_end(self, value: bytes) -> bool:
        return self._backend.decode(value)["status"] in _READY


def _meta(shown: Shown) -> dict[str, Any]:
    """Return the record that Celery's result backends keep of a task (status, result, …)."""
    return {
        "task_id": shown.operation_id,
        "status": _status(shown.state),
        "result": _result(shown),
        "traceback": None,
        "children": [],
        "parent_id": shown.parent_id,
        "date_done": datetime.now(UTC).isoformat() if shown.state.ended else None,
    }


def _status(state: OperationState) -> str:
    if state is OperationState.SUCCEEDED:
        return SUCCESS
    return FAILURE if state.ended else str(state)


def _result(shown: Shown) -> Mapping[str, Any] | None:
    if _status(shown.state) != FAILURE:
        return shown.result
    kind = (shown.error or {}).get("kind") or shown.state.capitalize()
    # Without a module Celery makes a class of this name: the reader needs none of our code.
    return {"exc_type": kind, "exc_message": [_failure(shown)], "exc_module": None}


def _failure(shown: Shown) -> str:
    text = fault_text(shown.error or {})
    if shown.state is OperationState.FAILED:
        return text or "the operation failed"
    how = "is stuck" if shown.state is OperationState.STUCK else "was cancelled"
    return f"the operation {how}" + (f" ({text})" if text else "")


def event_of(shown: Shown) -> dict[str, Any]:
    """Return the event that shows an operation in Flower."""
    event: dict[str, Any] = {
        "type": f"task-{shown.state.lower()}",
        "uuid": shown.operation_id,
        "name": shown.task,
        "args": "()",
        "kwargs": shown.shown,
        "root_id": shown.root_id or shown.operation_id,
        "parent_id": shown.parent_id,
    }
    if shown.began_at is not None:
        # Children come with no message of their own, by which Flower would sort and time them.
        event |= {"received": shown.began_at, "started": shown.began_at}
        if shown.ended_at is not None:
            event["runtime"] = shown.ended_at - shown.began_at
    status = _status(shown.state)
    if status == SUCCESS:
        return {**event, "type": "task-succeeded", "result": json.dumps(shown.result)}
    if status == FAILURE:
        kind = (shown.error or {}).get("kind") or shown.state.capitalize()
        text = f"{kind}({_failure(shown)!r})"
        return {**event, "type": "task-failed", "exception": text, "traceback": ""}
    return event
