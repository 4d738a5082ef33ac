"""How other services ask: plain Celery and plain AMQP, with nothing of ours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pika
from celery import Celery

from tasks.routing import exchange_of

CONTEXT = {"project_id": "demo", "user_id": "ann", "request_id": "req-1"}
SHARED = {"vcpus": 1, "memory_mb": 512}
PINNED = {"vcpus": 2, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def build_body(flavor: Any = None, count: int = 1, **instance: Any) -> dict[str, Any]:
    """Return the arguments of a build."""
    body = {"name": "vm", "flavor": flavor or PINNED, "image": {"id": "img"}, **instance}
    return {"context": CONTEXT, "instance": body, "count": count}


def instance_of(build: str, index: int = 0) -> str:
    """Return the id that everybody can compute for an instance of a build."""
    return str(uuid.uuid5(uuid.UUID(build), str(index)))


def child_of(build: str, index: int = 0) -> str:
    """Return the id of the operation that builds one instance of a request."""
    return str(uuid.uuid5(uuid.UUID(build), f"build-{index}"))


class Sender:
    """Another service."""

    def __init__(self, broker_url: str, result_url: str) -> None:
        self._url = broker_url
        self._app = Celery(broker=broker_url, backend=result_url, set_as_current=False)
        # Nobody would notice a request that the broker has lost with the connection.
        self._app.conf.broker_transport_options = {"confirm_publish": True}

    def send(self, task: str, body: Mapping[str, Any], id_: str | None = None) -> str:
        """Enqueue a request with Celery; return its id, which is the operation's."""
        id_ = id_ or str(uuid.uuid4())
        self._app.send_task(
            f"conductor.{task}",
            kwargs=dict(body),
            task_id=id_,
            exchange="conductor",
            routing_key="conductor",
            retry=True,
        )
        return id_

    def state(self, id_: str) -> str:
        """Return what Celery's result backend says of a request."""
        return str(self._app.AsyncResult(id_).state)

    def build(self, flavor: Any = None, count: int = 1, **instance: Any) -> str:
        return self.send("build_instances", build_body(flavor, count, **instance))

    def ask(self, verb: str, instance_id: str, id_: str | None = None) -> str:
        """Enqueue `delete`, `start` or `stop` for an instance."""
        body = {"context": CONTEXT, "instance_id": instance_id}
        return self.send(f"{verb}_instance", body, id_)

    def publish(
        self,
        body: bytes,
        headers: Mapping[str, Any] | None,
        routing_key: str = "conductor",
        **properties: Any,
    ) -> None:
        """Publish any bytes at all, to one of our queues."""
        known = {"content_type": "application/json", "content_encoding": "utf-8", **properties}
        with self._connected() as connection:
            connection.channel().basic_publish(
                exchange_of(routing_key).name,
                routing_key,
                body,
                pika.BasicProperties(headers=headers, **known),
            )

    def waiting(self, queue: str) -> int:
        """Return how many messages of a queue nobody has taken."""
        with self._connected() as connection:
            found = connection.channel().queue_declare(queue, passive=True)
            return int(found.method.message_count)

    def mailbox(self) -> str:
        """Make a queue for answers; return its name."""
        with self._connected() as connection:
            name = f"answers-{uuid.uuid4()}"
            connection.channel().queue_declare(name, arguments={"x-expires": 600_000})
            return name

    def read(self, queue: str, timeout_s: float = 10.0) -> tuple[Any, Any] | None:
        """Return properties and JSON body of the next message, or nothing in time."""
        with self._connected() as connection:
            channel = connection.channel()
            consumed = channel.consume(queue, auto_ack=True, inactivity_timeout=timeout_s)
            _, properties, body = next(consumed)
            return None if body is None else (properties, json.loads(body))

    def _connected(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self._url))


def task_body(body: Mapping[str, Any]) -> bytes:
    """Return arguments as a Celery task message (protocol 2) carries them."""
    return json.dumps([[], body, {}]).encode()
