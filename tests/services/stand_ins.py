"""Processes with stand-ins for conductor, scheduler and agent: they say what they are told.

    python -m tests.services.stand_ins conductor|impatient|scheduler|compute BROKER_URL [FILE]

The conductor does what an instance's name says: `slow-S` takes S seconds, `broken` raises,
`away` finds no store until FILE exists. Everything else is told on stdout, a JSON line each.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from conductor.store import DeadLetter
from conductor.undelivered import refused_message
from models.errors import Broken, Rejected, Unreachable
from models.messages.base import parse
from models.messages.internal import (
    CONDUCTOR,
    Canary,
    Heartbeat,
    HostRegistration,
    Instruction,
    InventoryReport,
    OutgoingMessage,
    Progress,
    Refusal,
    Reply,
    SelectHosts,
)
from tasks.app import make_app
from tasks.compute_tasks import Host, serve_compute
from tasks.conductor_tasks import register, serve_conductor
from tasks.consuming.hardened_consumer import Consuming
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import node_name, serve
from tasks.flower.event_stream import EventStream
from tasks.routing import work_queue
from tasks.scheduler_tasks import serve_scheduler
from tasks.sending.celery_carrier import CeleryCarrier

_lock = threading.Lock()


def tell(**fields: Any) -> None:
    with _lock:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


class StandIn:
    """Conductor, scheduler and agent in one."""

    def __init__(self, store_is_back: Path) -> None:
        self._store_is_back = store_is_back

    def handle_request(
        self,
        task: str,
        operation_id: str,
        body: Mapping[str, Any],
        reply_to: str | None = None,
        fault: Rejected | None = None,
    ) -> None:
        if fault is not None:
            tell(what="refused", id=operation_id, reply_to=reply_to, reason=fault.message)
            return
        self._act(str((body.get("instance") or {}).get("name", "")), operation_id)
        told = {"task": task, "id": operation_id, "body": dict(body), "reply_to": reply_to}
        tell(what="request", **told)

    def _act(self, name: str, operation_id: str) -> None:
        if name.startswith("slow-"):
            tell(what="begun", id=operation_id)
            time.sleep(float(name.removeprefix("slow-")))
        if name == "broken":
            raise ZeroDivisionError("a defect")
        if name == "away" and not self._store_is_back.exists():
            tell(what="held", id=operation_id)
            raise Unreachable("database_unreachable", "the database does not answer")

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        tell(what="reply", sender=parse(Reply, body).sender)
        return True

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        tell(what="registration", host=parse(HostRegistration, body).host)

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        tell(what="heartbeat", host=parse(Heartbeat, body).host)

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        tell(what="inventory_report", host=parse(InventoryReport, body).host)

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        tell(what="progress", sender=parse(Progress, body).sender)
        return True

    def handle_refusal(self, body: Mapping[str, Any]) -> None:
        refusal = parse(Refusal, body)
        tell(what="refusal", sender=refusal.sender)
        self.handle_dead_letter(refused_message(refusal, time.time()))

    def handle_dead_letter(self, outgoing: DeadLetter) -> None:
        tell(what="dead", **asdict(outgoing))

    def handle(self, message: SelectHosts) -> Sequence[OutgoingMessage]:
        tell(what="select", step=message.token.step)
        return [
            OutgoingMessage("conductor", "conductor.build_instances", {}, shown=message.token.step)
        ]

    def publish(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        tell(what="published", shown=[outgoing.shown for outgoing in outgoing_messages])

    def hear(self, canary: Canary) -> None:
        tell(what="canary", sent_at=canary.sent_at)

    def receive(self, instruction: Instruction) -> None:
        tell(what="instruction", verb=instruction.verb, instance_id=instruction.instance_id)
        if instruction.verb == "spoil":
            raise Broken("journal_failed", "the disk is full")


def serve_impatiently(broker_url: str, stand_in: StandIn, events: EventStream) -> int:
    """Serve as the conductor does, but hold messages for a second only."""
    app = make_app(broker_url, (work_queue(CONDUCTOR),))
    store_retry = StoreRetry(hold_s=1.0)
    register(app, stand_in, store_retry)
    return serve(app, CONDUCTOR, Consuming(32, store_retry, events))


def end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main(role: str, broker_url: str, store_is_back: str = "/nowhere") -> int:
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    stand_in = StandIn(Path(store_is_back))
    app = make_app(broker_url)
    events = EventStream(app, node_name(role))
    carrier = CeleryCarrier(app)
    try:
        if role == "conductor":
            return serve_conductor(broker_url, stand_in, events)
        if role == "impatient":
            return serve_impatiently(broker_url, stand_in, events)
        if role == "scheduler":
            return serve_scheduler(broker_url, stand_in, stand_in.publish, carrier.send, events)
        return serve_compute(broker_url, Host("h1", ("spawn",)), stand_in, events, carrier.send)
    finally:
        events.close()
        carrier.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
