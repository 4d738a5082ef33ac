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
class Wish:
    """One operation of a life; `label` is what the figures call it."""

    label: str
    task: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def build(**wishes: Any) -> Wish:
    """Return the wish that every life begins with."""
    body = {"name": "vm", "flavor": SMALL, "image": IMAGE, **wishes}
    return Wish("build", "build_instances", {"instance": body})


DELETE = Wish("delete", "delete_instance")
WHOLE_LIFE = (
    build(),
    Wish("stop", "stop_instance"),
    Wish("start", "start_instance"),
    Wish("cold migrate", "migrate_instance"),
    Wish("confirm", "confirm_resize"),
    Wish("resize", "resize_instance", {"flavor": LARGE}),
    Wish("revert", "revert_resize"),
    Wish("live migrate", "live_migrate_instance"),
    Wish("rebuild", "rebuild_instance", {"image": IMAGE}),
    Wish("shelve and offload", "shelve_instance", {"offload": True}),
    Wish("unshelve", "unshelve_instance"),
    DELETE,
)
EVACUATED = (Wish("evacuate", "evacuate_instance"), DELETE)

Send: TypeAlias = Callable[[OutgoingMessage], None]
Hear: TypeAlias = Callable[[], Mapping[str, Any] | None]
"""Return the body of the next notice, or nothing when none comes for a moment."""


class Lives:
    """Lives that are led over one way of sending requests and hearing of their ends."""

    def __init__(self, send: Send, hear: Hear) -> None:
        self._send = send
        self._hear = hear
        self._left: dict[str, list[Wish]] = {}
        self.asked: dict[str, str] = {}
        """Operation id to label, of every request sent."""

    def lead(self, lives: int, wishes: Sequence[Wish]) -> list[str]:
        """Begin lives with a build each; return the ids of the instances."""
        ids = []
        for _ in range(lives):
            operation_id = new_operation_id()
            instance_id = child_instance_id(OperationId(operation_id), 0)
            self._ask(operation_id, wishes[0], {})
            self._left[instance_id] = list(wishes[1:])
            ids.append(instance_id)
        return ids

    def go_on(self, instance_ids: Sequence[str], wishes: Sequence[Wish]) -> None:
        """Let instances that rest live through more."""
        for instance_id in instance_ids:
            self._ask(new_operation_id(), wishes[0], {"instance_id": instance_id})
            self._left[instance_id] = list(wishes[1:])

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
        wishes = self._left.get(instance_id)
        if wishes:
            self._ask(new_operation_id(), wishes.pop(0), {"instance_id": instance_id})
        else:
            self._left.pop(instance_id, None)

    def _ask(self, operation_id: str, wish: Wish, subject: Mapping[str, str]) -> None:
        self.asked[operation_id] = wish.label
        body = {"context": CONTEXT, **subject, **wish.arguments}
        self._send(OutgoingMessage(CONDUCTOR, f"conductor.{wish.task}", body, operation_id))
