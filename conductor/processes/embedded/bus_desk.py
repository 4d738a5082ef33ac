"""Where messages go that come off the in-process bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conductor.scheduling.scheduling_service import Scheduler
from conductor.service import ConductorService
from models.messages.base import parse
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
    OutgoingMessage,
    SelectHosts,
)


class Desk:
    """Takes messages off the bus to the part that they are for, one call each."""

    def __init__(self, service: ConductorService, scheduler: Scheduler) -> None:
        self._service = service
        self._scheduler = scheduler
        self._reports: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
            REPLY: service.handle_reply,
            REGISTRATION: service.handle_registration,
            HEARTBEAT: service.handle_heartbeat,
            INVENTORY_REPORT: service.handle_inventory_report,
            PROGRESS: service.handle_progress,
            REFUSED: service.handle_refusal,
        }

    def request(self, outgoing: OutgoingMessage) -> None:
        """Take a request to the conductor."""
        self._service.handle_request(outgoing.task, outgoing.id, outgoing.body)

    def report(self, outgoing: OutgoingMessage) -> None:
        """Take a reply or a host's report to the conductor."""
        self._reports[outgoing.task](outgoing.body)

    def question(self, outgoing: OutgoingMessage) -> None:
        """Take a question to the scheduler, and let its answer leave."""
        replies = self._scheduler.handle(parse(SelectHosts, outgoing.body))
        self._service.transactions.outbox.publish(replies)
