"""Instances that live through one operation after another, many at once.

The next operation of an instance is asked for when the notice says that the one before has
ended, as another service would do it: so at any time operations of every kind are under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from models.ids import OperationId, child_instance_id, new_operation_id
from models.messages.internal import CONDUCTOR, OutgoingMessage
from tests.operations.world import CONTEXT

SMALL = {"vcpus": 1, "memory_mb": 256}
LARGE = {"vcpus": 2, "memory_mb": 512}
IMAGE = {"id": "img"}
LAST_S = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """One operation of a life; `label` is what the figures call it."""

    label: str
    task: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def build(**fields: Any) -> Request:
    """Return the request that every life begins with."""
    body = {"name": "vm", "flavor": SMALL, "image": IMAGE, **fields}
    return Request("build", "build_instances", {"instance": body})


DELETE = Request("delete", "delete_instance")
WHOLE_LIFE = (
    build(),
    Request("stop", "stop_instance"),
    Request("start", "start_instance"),
    Request("cold migrate", "migrate_instance"),
    Request("confirm", "confirm_resize"),
    Request("resize", "resize_instance", {"flavor": LARGE}),
    Request("revert", "revert_resize"),
    Request("live migrate", "live_migrate_instance"),
    Request("rebuild", "rebuild_instance", {"image": IMAGE}),
    Request("shelve and offload", "shelve_instance", {"offload": True}),
    Request("unshelve", "unshelve_instance"),
    DELETE,
)
EVACUATED = (Request("evacuate", "evacuate_instance"), DELETE)

Send: TypeAlias = Callable[[OutgoingMessage], None]
Hear: TypeAlias = Callable[[], Mapping[str, Any] | None]
"""Return the body of the next notice, or nothing when none comes for a moment."""


class Lives:
    """Lives that are led over one way of sending requests and hearing of their ends."""

    def __init__(self, send: Send, hear: Hear) -> None:
        self._send = send
        self._hear = hear
        self._left: dict[str, list[Request]] = {}
        self.asked: dict[str, str] = {}
        """Operation id to label, of every request sent."""

    def lead(self, lives: int, requests: Sequence[Request]) -> list[str]:
        """Begin lives with a build each; return the ids of the instances."""
        ids = []
        for _ in range(lives):
            operation_id = new_operation_id()
            instance_id = child_instance_id(OperationId(operation_id), 0)
            self._ask(operation_id, requests[0], {})
            self._left[instance_id] = list(requests[1:])
            ids.append(instance_id)
        return ids

    def go_on(self, instance_ids: Sequence[str], requests: Sequence[Request]) -> None:
        """Let instances that rest live through more."""
        for instance_id in instance_ids:
            self._ask(new_operation_id(), requests[0], {"instance_id": instance_id})
            self._left[instance_id] = list(requests[1:])

    def end(self) -> None:
        """Return when the last has lived through everything; nothing may have failed."""
        until = time.monotonic() + LAST_S
        while self._left:
            assert time.monotonic() < until, f"{len(self._left)} lives do not end"
            notice = self._hear()
            if notice is None or notice["event"] == "start" or notice["instance"] is None:
                continue
            assert notice["event"] == "end", notice
            self._next(notice["instance"]["id"])

    def _next(self, instance_id: str) -> None:
        requests = self._left.get(instance_id)
        if requests:
            self._ask(new_operation_id(), requests.pop(0), {"instance_id": instance_id})
        else:
            self._left.pop(instance_id, None)

    def _ask(self, operation_id: str, request: Request, subject: Mapping[str, str]) -> None:
        self.asked[operation_id] = request.label
        body = {"context": CONTEXT, **subject, **request.arguments}
        self._send(OutgoingMessage(CONDUCTOR, f"conductor.{request.task}", body, operation_id))
