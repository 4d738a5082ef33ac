"""What others see of operations: `AsyncResult` in a service that shares no code with us, Flower."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from amqp.exceptions import AMQPError
from celery import Celery
from celery.events.state import State
from celery.exceptions import TimeoutError as CeleryTimeoutError
from kombu import Connection

from models.errors import NoValidHost
from models.lifecycle import OperationState
from models.messages.internal import CONDUCTOR, OutgoingMessage
from tasks.app import make_app
from tasks.flower.event_stream import EventStream
from tasks.flower.operation_results import ResultShower, Shown
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import CeleryCarrier
from tests.limits import Limit, limit_s
from tests.services.processes import build_body, running

TASK = "conductor.build_instances"
SECRET = "canary-7f3a"


class Watcher:
    """Celery's own view of its events, which is Flower's."""

    def __init__(self, url: str) -> None:
        self.state: Any = State()
        self.events: list[dict[str, Any]] = []
        self._url = url
        self._ready = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        assert self._ready.wait(10)

    def wait_for(self, task_id: str, state: str) -> Any:
        """Return the task once it shows this state."""
        limit = Limit(15)
        while True:
            task = self.state.tasks.get(task_id)
            if task is not None and task.state == state:
                return task
            assert not limit.over, f"{task_id} shows {task and task.state}"
            time.sleep(0.02)

    def _watch(self) -> None:
        app = Celery(broker=self._url)
        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": self._take})
            consuming = receiver.consume(limit=None, timeout=limit_s(60), wakeup=False)
            threading.Timer(0.5, self._ready.set).start()
            with suppress(OSError, AMQPError):
                for _ in consuming:
                    pass

    def _take(self, event: dict[str, Any]) -> None:
        self.events.append(dict(event))
        self.state.event(event)


@pytest.fixture(scope="module")
def url(fresh_vhost: Callable[[], str]) -> str:
    url = fresh_vhost()
    with Connection(url) as connection:
        declare_topology(connection)
    return url


@pytest.fixture(scope="module")
def watcher(url: str) -> Watcher:
    return Watcher(url)


@contextmanager
def showing(url: str, events: EventStream | None = None) -> Iterator[ResultShower]:
    shower = ResultShower(url, events)
    try:
        yield shower
    finally:
        shower.close()


def stranger(redis_url: str) -> Celery:
    """A service of somebody else."""
    return Celery(broker="amqp://", backend=redis_url)


def shows(redis_url: str, operation_id: str, state: str) -> bool:
    return str(stranger(redis_url).AsyncResult(operation_id).state) == state


def shown(state: OperationState, operation_id: str | None = None, **more: Any) -> Shown:
    return Shown(operation_id or str(uuid.uuid4()), TASK, state, **more)


def test_another_service_follows_an_operation_to_its_result(redis_url: str) -> None:
    operation_id = str(uuid.uuid4())
    result: Any = stranger(redis_url).AsyncResult(operation_id)
    assert result.state == "PENDING"
    with showing(redis_url) as shower:
        shower.show(shown(OperationState.SCHEDULING, operation_id))
        wait_until(lambda: result.state == "SCHEDULING")
        assert not result.ready()
        end = shown(OperationState.SUCCEEDED, operation_id, result={"instances": ["a"]})
        threading.Timer(0.2, shower.show, [end]).start()
        assert result.get(timeout=limit_s(10)) == {"instances": ["a"]}
        assert result.state == "SUCCESS"


def test_a_failure_is_raised_with_its_kind_code_and_sentence(redis_url: str) -> None:
    error = NoValidHost("no_valid_host", "none of 3 hosts takes it").to_json()
    failed = shown(OperationState.FAILED, error=error)
    with showing(redis_url) as shower:
        shower.show(failed)
        result = stranger(redis_url).AsyncResult(failed.operation_id)
        with pytest.raises(Exception, match="no_valid_host: none of 3 hosts takes it") as caught:
            result.get(timeout=limit_s(10))
    assert type(caught.value).__name__ == "NoValidHost"
    assert result.state == "FAILURE"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (OperationState.CANCELLED, "the operation was cancelled"),
        (OperationState.STUCK, "the operation is stuck"),
    ],
)
def test_other_ends_are_failures_that_say_which(
    redis_url: str, state: OperationState, sentence: str
) -> None:
    ended = shown(state)
    with showing(redis_url) as shower:
        shower.show(ended)
        result = stranger(redis_url).AsyncResult(ended.operation_id)
        with pytest.raises(Exception, match=sentence):
            result.get(timeout=limit_s(10))
    assert result.state == "FAILURE"


def test_a_late_word_of_another_process_never_reopens_what_has_ended(redis_url: str) -> None:
    for end in (OperationState.SUCCEEDED, OperationState.FAILED):
        operation_id = str(uuid.uuid4())
        result = stranger(redis_url).AsyncResult(operation_id)
        with showing(redis_url) as one, showing(redis_url) as other:
            one.show(shown(end, operation_id))
            wait_until(result.ready)
            other.show(shown(OperationState.RUNNING, operation_id))
            other.show(marker := shown(OperationState.RUNNING))
            wait_until(partial(shows, redis_url, marker.operation_id, "RUNNING"))
        assert result.ready()


def test_only_operations_without_an_end_are_still_to_be_shown(redis_url: str) -> None:
    ended, running, unknown = (str(uuid.uuid4()) for _ in range(3))
    with showing(redis_url) as shower:
        shower.show(shown(OperationState.SUCCEEDED, ended))
        shower.show(shown(OperationState.RUNNING, running))
    with showing(redis_url) as another:
        assert another.unshown([ended, running, unknown]) == [running, unknown]
        assert another.unshown([]) == []


def test_nothing_is_still_to_be_shown_to_a_redis_that_is_not_there() -> None:
    with showing("redis://127.0.0.1:1/0") as shower:
        assert shower.unshown([str(uuid.uuid4())]) == []


def test_a_thousand_states_at_once_all_arrive(redis_url: str) -> None:
    ended = [shown(OperationState.SUCCEEDED, result={"n": n}) for n in range(1_000)]
    app = stranger(redis_url)
    with showing(redis_url) as shower:
        for item in ended:
            shower.show(shown(OperationState.RUNNING, item.operation_id))
            shower.show(item)
        last = app.AsyncResult(ended[-1].operation_id)
        assert last.get(timeout=limit_s(10)) == {"n": 999}
    assert all(app.AsyncResult(item.operation_id).state == "SUCCESS" for item in ended)


def test_nobody_waits_for_a_redis_that_is_not_there() -> None:
    with showing("redis://127.0.0.1:1/0") as shower:
        began = time.monotonic()
        for _ in range(1_000):
            shower.show(shown(OperationState.RUNNING))
        assert time.monotonic() - began < 1


def test_a_result_nobody_wrote_stays_pending(redis_url: str) -> None:
    with pytest.raises(CeleryTimeoutError):
        stranger(redis_url).AsyncResult(str(uuid.uuid4())).get(timeout=0.1)


def test_flower_shows_the_operation_from_its_request_to_its_end(
    url: str, redis_url: str, watcher: Watcher
) -> None:
    app = make_app(url)
    events = EventStream(app, "conductor-test@here")
    carrier = CeleryCarrier(app, events)
    request = OutgoingMessage(CONDUCTOR, TASK, build_body("one"), shown="build one")
    with running("conductor", url) as conductor, showing(redis_url, events) as shower:
        carrier.send([request])
        conductor.expect(what="request", id=request.id)
        sent = watcher.wait_for(request.id, "STARTED")
        assert (sent.name, sent.routing_key) == (TASK, CONDUCTOR)
        assert sent.worker.hostname.startswith("conductor-")
        shower.show(shown(OperationState.SCHEDULING, request.id, shown="build one"))
        watcher.wait_for(request.id, "SCHEDULING")
        end = shown(OperationState.SUCCEEDED, request.id, result={"instances": ["a"]})
        shower.show(end)
        assert watcher.wait_for(request.id, "SUCCESS").result == '{"instances": ["a"]}'
        carrier.send([request])
        conductor.expect_many(2, what="request", id=request.id)
        time.sleep(0.5)
        watcher.wait_for(request.id, "SUCCESS")
    carrier.close()
    events.close()


def test_flower_shows_why_an_operation_failed_and_whose_child_it_was(
    url: str, redis_url: str, watcher: Watcher
) -> None:
    events = EventStream(make_app(url), "conductor-test@here")
    error = NoValidHost("no_valid_host", "none of 3 hosts takes it").to_json()
    ids = {"root_id": str(uuid.uuid4()), "parent_id": str(uuid.uuid4())}
    with showing(redis_url, events) as shower:
        shower.show(failed := shown(OperationState.FAILED, error=error, **ids))
        task = watcher.wait_for(failed.operation_id, "FAILURE")
    events.close()
    assert task.exception == "NoValidHost('no_valid_host: none of 3 hosts takes it')"
    assert (task.root_id, task.parent_id) == (ids["root_id"], ids["parent_id"])


def test_the_arguments_of_a_request_never_reach_the_events(url: str, watcher: Watcher) -> None:
    request_id = str(uuid.uuid4())
    with running("conductor", url) as conductor:
        Celery(broker=url).send_task(
            TASK,
            kwargs=build_body(SECRET),
            task_id=request_id,
            exchange=CONDUCTOR,
            routing_key=CONDUCTOR,
        )
        conductor.expect(what="request", id=request_id)
        task = watcher.wait_for(request_id, "STARTED")
    assert task.kwargs == "{context, instance}"
    assert SECRET not in str(watcher.events)


def test_events_are_dropped_when_nobody_can_take_them() -> None:
    events = EventStream(make_app("amqp://guest:guest@127.0.0.1:1//"), "lonely@here")
    began = time.monotonic()
    for number in range(20_000):
        events.add([{"type": "task-sent", "uuid": str(number)}])
    events.close()
    assert time.monotonic() - began < 5


def wait_until(true: Callable[[], bool]) -> None:
    limit = Limit(10)
    while not true():
        assert not limit.over
        time.sleep(0.01)
