"""The Celery application: one configuration for every process, checked before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery import Celery, Task
from kombu import Queue

from models.errors import Rejected
from tasks.routing import EXCHANGE
from tasks.wire_decoding import FrameReader

READ_TIMEOUT_S = WRITE_TIMEOUT_S = 5
CONNECT_TIMEOUT_S = 4
HEARTBEAT_S = 30

_OF_CELERY = "celery."

_SETTINGS: dict[str, Any] = {
    # What is taken is finished or given back: acknowledged late, rejected when a worker is lost.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    # A handler that raises what nobody expected sends its message to the dead letters.
    "task_acks_on_failure_or_timeout": False,
    # A result backend that is down would hold the work up: states are shown apart, by
    # `tasks.flower.operation_results`.
    "task_ignore_result": True,
    "task_create_missing_queues": False,
    "task_default_exchange": EXCHANGE.name,
    "task_default_exchange_type": EXCHANGE.type,
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    "accept_content": ["json"],
    "task_send_sent_event": True,
    "worker_send_task_events": True,
    "worker_enable_remote_control": False,
    "worker_hijack_root_logger": False,
    # Threads cannot be cancelled; a second run of the same token changes nothing.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_heartbeat": HEARTBEAT_S,
    "broker_connection_timeout": CONNECT_TIMEOUT_S,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    # Without both timeouts a confirm is awaited for ever while the broker is blocked.
    "broker_transport_options": {
        "confirm_publish": True,
        "read_timeout": READ_TIMEOUT_S,
        "write_timeout": WRITE_TIMEOUT_S,
        # Else one message with a byte that is not UTF-8 ends every process that is given it.
        "frame_handler": FrameReader,
    },
    "task_publish_retry_policy": {
        "max_retries": 1,
        "interval_start": 0.2,
        "interval_step": 0.2,
        "interval_max": 1,
    },
    "enable_utc": True,
    "timezone": "UTC",
}


class KeywordTask(Task[Any, Any]):
    """A task whose keyword arguments may have any name, `self` included."""

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Run the body."""
        return self.run(*arguments, **keywords)


def make_app(broker_url: str, queues: Iterable[Queue] = (), name: str = "conductor") -> Celery:
    """Return an application for this broker that knows `queues` and declares nothing by itself.

    It is no process-wide default: several may live side by side. Tasks are registered by
    `tasks.conductor_tasks`, `tasks.scheduler_tasks` and `tasks.compute_tasks`.
    """
    app: Celery[Task[Any, Any]] = Celery(
        name, broker=broker_url, task_cls=KeywordTask, set_as_current=False, fixups=[]
    )
    app.conf.update(_SETTINGS)
    known = tuple(queues)
    app.conf.update(task_queues=known)
    if known:
        app.conf.update(task_default_queue=known[0].name, task_default_routing_key=known[0].name)
    _forget_tasks_of_celery(app)
    return app


def _forget_tasks_of_celery(app: Celery) -> None:
    """Unregister what every application brings along: `celery.group` sends whatever it is told."""
    app.finalize()
    for name in [name for name in app.tasks if name.startswith(_OF_CELERY)]:
        app.tasks.unregister(name)


def check_late_acknowledgement(app: Celery) -> None:
    """Refuse an application, or a task of it, that acknowledges late but loses a lost worker's.

    Late acknowledgement alone still acknowledges when a child process is killed, and the message
    is gone: `Rejected` (`acks_late_alone`) names where.
    """
    if app.conf.task_acks_late and not app.conf.task_reject_on_worker_lost:
        raise _alone("the configuration")
    for name, task in app.tasks.items():
        if task.acks_late and not task.reject_on_worker_lost:
            raise _alone(f"task {name}")


def _alone(where: str) -> Rejected:
    return Rejected(
        "acks_late_alone",
        f"{where} sets acks_late without reject_on_worker_lost: a killed worker loses messages",
        key="task_reject_on_worker_lost",
    )
