"""What an agent reports: registration, heartbeats, inventory, progress and replies."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog
from tenacity import Retrying

from models.errors import ConductorError, HostRefused
from models.ids import HostName
from models.messages.base import parse
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REGISTRATION,
    Instruction,
    OutgoingMessage,
    Progress,
    RegistrationAnswer,
    Reply,
    Reservation,
)
from workers.agent_record import Record
from workers.hypervisor.ports import Hypervisor
from workers.journal.entries import token_key
from workers.obeyed_database import obeyed
from workers.reporter import Post, Reporter
from workers.reports import (
    Guests,
    Sender,
    guests_of,
    inventory_message,
    progress_message,
    refuse_incomplete,
    registration_message,
    reply_message,
)
from workers.settings import WorkerSettings
from workers.tracker import Tracker

NOT_RECORDED = (REGISTRATION, HEARTBEAT, INVENTORY_REPORT, PROGRESS)
"""Keys of reports that the journal does not keep: only replies are owed."""


def reservation(settings: WorkerSettings) -> Reservation:
    """Return what the host keeps for itself."""
    return Reservation(
        memory_mib=settings.reserved_memory_mib,
        disk_gb=settings.reserved_disk_gb,
        vcpus=settings.reserved_vcpus,
    )


@dataclass(eq=False)
class AgentReports:
    """Writes the reports of an agent and hands them to its reporter.

    Reports are posted by a thread of `executor`, without one by the thread that submits them.
    """

    host: HostName
    hypervisor: Hypervisor
    record: Record
    tracker: Tracker
    reserved: Reservation
    post: Post
    retrying: Retrying
    executor: Executor | None

    def __post_init__(self) -> None:
        self._sender = Sender(self.host, str(uuid.uuid4()))
        self._reporter = Reporter(self.post, self._posted, self.retrying)

    @property
    def boot_id(self) -> str:
        """What tells this life of the host's agent from every other."""
        return self._sender.boot_id

    def refuse_incomplete(self) -> None:
        """Raise `Rejected` for a host that cannot be offered as it says it is."""
        refuse_incomplete(self.hypervisor, self.reserved)

    def submit_registration(self) -> None:
        """Register the host: its hardware, its guests, and which start of its worker this is."""
        self._reporter.submit(REGISTRATION, self._registration)

    def registration_answered(self, instruction: Instruction) -> HostRefused | None:
        """Register again where the conductor asks for it; return why it refuses this worker.

        An answer to another life of the agent is ignored: two workers may read one queue by
        mistake.
        """
        answer = parse(RegistrationAnswer, instruction.args)
        if answer.boot_id != self.boot_id:
            return None
        if answer.outcome == "again":
            self._sender.replaces = answer.replaces
            self.submit_registration()
            self.flush_elsewhere()
            return None
        reason = answer.reason or f"{self.host} is served by another worker"
        structlog.get_logger().error("worker_refused", host=self.host, reason=reason)
        return HostRefused("worker_refused", reason, host=self.host)

    def submit_heartbeat(self, write: Callable[[Sender], OutgoingMessage]) -> None:
        """Report that the host lives; `write` is called when the heartbeat is posted."""
        self._reporter.submit(HEARTBEAT, lambda: write(self._introduced()))

    def submit_inventory(self, write: Callable[[], OutgoingMessage] | None = None) -> None:
        """Report every guest of the host: as listed when it is posted, or as already written."""
        self._reporter.submit(INVENTORY_REPORT, write or self.inventory)

    def submit_progress(self, instruction: Instruction, percent: int) -> None:
        """Report how far a long action is; newer progress replaces what has not been posted."""
        progress = Progress(token=instruction.token, sender=self.host, percent=percent)
        key = f"{PROGRESS} {token_key(instruction.token)}"
        self._reporter.submit(key, lambda: progress_message(progress))
        self.flush_elsewhere()

    def submit_reply(self, reply: Reply) -> None:
        """Report what came of an instruction; the record is told when the reply has left."""
        self._reporter.submit(token_key(reply.token), lambda: reply_message(reply))

    def inventory(self) -> OutgoingMessage:
        """List the guests of the host now and return the inventory report.

        Where the host is not made of what it was, it is registered anew too.
        """
        self._take_in_hardware()
        return inventory_message(self._sender, self._guests())

    def flush(self, probe: bool = False) -> None:
        """Post what waits; while the carrier is unreachable only with `probe`."""
        self._reporter.flush(probe)

    def flush_elsewhere(self) -> None:
        """Post from another thread where there is one: a slow carrier must delay no receive."""
        if self.executor is None:
            self._reporter.flush()
        else:
            self.executor.submit(self._reporter.flush)

    def close(self) -> None:
        """Send nothing more."""
        self._reporter.close()

    def _take_in_hardware(self) -> None:
        log = structlog.get_logger()
        try:
            if not self.tracker.renew(self.hypervisor.hardware()):
                return
            refuse_incomplete(self.hypervisor, self.reserved)
        except ConductorError as error:
            # What it was is what it goes on as: the guests are to be listed all the same.
            log.warning("hardware_unread", host=self.host, code=error.code, error=error.message)
            return
        log.warning("hardware_changed", host=self.host)
        self.submit_registration()

    def _introduced(self) -> Sender:
        self._sender.obeys = obeyed(self.record.obeys)
        return self._sender

    def _posted(self, key: str) -> None:
        if not key.startswith(NOT_RECORDED):
            self.record.reported(key)

    def _registration(self) -> OutgoingMessage:
        return registration_message(
            self._introduced(), self.record.started, self.hypervisor, self.reserved, self._guests()
        )

    def _guests(self) -> Guests:
        # Fences before guests: a guest may then be newer than its fence says, never older, and
        # a destroy that ends in between cannot look as if its guest had outlived it.
        fences = self.record.done_fences()
        domains = self.tracker.audit(self.hypervisor.domains)
        return guests_of(domains, fences, sorted(self.tracker.tracked.degraded))
