"""The agent of one host: takes instructions, carries each out once, and says what came of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from threading import Event, Lock
from typing import Literal

import structlog

from models.errors import Broken, ConductorError, HostRefused, Unreachable
from models.ids import HostName, InstanceId
from models.messages.base import parse
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REGISTRATION,
    REGISTRATION_VERDICT,
    Canary,
    Instruction,
    OutgoingMessage,
    Progress,
    RegistrationAnswer,
    Reply,
    Reservation,
)
from workers.actions.action_context import Work
from workers.actions.action_registry import perform
from workers.agent_record import Record
from workers.call_watchdog import Aside, Watch, interrupts, is_urgent, patience_s
from workers.hypervisor.fenced_hypervisor import AgentDead, FencedHypervisor
from workers.hypervisor.ports import Hypervisor
from workers.journal.entries import token_key
from workers.journal.instruction_ledger import Verdict
from workers.journal.ports import Journal
from workers.keyed_executor import KeyedExecutor, Policy, in_a_thread
from workers.reporter import Post, Reporter, retrying
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
from workers.tracker import Tracker, Usage, usage

ABORT_TIMEOUT_S = 5.0
"""How long `kill` waits for hypervisor calls that do not heed an abort."""


class _Phase(Enum):
    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(eq=False)
class Agent:
    """Works for one host until it is drained or killed; its successor needs only the journal.

    `receive` promises: an instruction it returned from is carried out and answered, by this
    agent or by the next on the same journal and hypervisor; its effect happens once, its answer
    is sent at least once. Safe to use from several threads. Without `executor` everything is
    done by the calling thread, in order. `on_begin` is told what is begun, again after a restart;
    `on_refused` why another worker serves the host, or this machine is another host. `spare` does
    what must not wait for a thread of the executor, all of which may hang.
    """

    host: HostName
    hypervisor: Hypervisor
    journal: Journal
    post: Post
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    clock: Callable[[], float] = time.time
    executor: Executor | None = None
    on_begin: Callable[[Instruction], None] = field(default=lambda _: None)
    on_refused: Callable[[HostRefused], None] = field(default=lambda _: None)
    spare: Callable[[Callable[[], None]], object] = in_a_thread

    def __post_init__(self) -> None:
        self._sender = Sender(self.host, str(uuid.uuid4()))
        self._phase = _Phase.NEW
        self._phase_lock = Lock()
        self._stopped = Event()
        self._manifest_at = 0.0
        self._taken_up: set[str] = set()
        self._fenced = FencedHypervisor(self.hypervisor)
        self._record = Record(self.journal, self.settings, self.clock)
        self._tracker = Tracker(self.hypervisor.hardware())
        # No step of the clock on the wall makes a call look as if it hung.
        ticks = time.monotonic if self.clock is time.time else self.clock
        policy: Policy[Instruction] = Policy(is_urgent, patience_s, ticks, self.spare)
        width = self.settings.concurrency
        self._lanes = KeyedExecutor[Instruction](self.executor, width, self._work, policy)
        self._watch = Watch(self._lanes, self.settings, Aside(ticks, self.spare))
        self._reporter = Reporter(self.post, self._posted, retrying(self.settings, self._stopped))

    @property
    def boot_id(self) -> str:
        """What tells this life of the host's agent from every other."""
        return self._sender.boot_id

    @property
    def running(self) -> bool:
        """Whether the agent takes work."""
        return self._phase is _Phase.RUNNING

    def start(self) -> None:
        """Take up what the journal says: send what is answered, go on with the rest, say hello.

        Raises `Rejected` for a host that cannot be offered as it says it is, and what
        journal and hypervisor raise. A carrier that is down is no error: the letters wait.
        """
        refuse_incomplete(self.hypervisor, self._reserved())
        self._record.load()
        self._tracker.audit(self._fenced.domains)
        self._manifest_at = self.clock() + self.settings.manifest_s
        self._phase = _Phase.RUNNING
        for reply in self._record.unreported():
            self._submit(reply)
        owed = self._record.owed()
        self._taken_up = {token_key(instruction.token) for instruction in owed}
        for instruction in owed:
            self._lanes.put(instruction.instance_id, instruction)
        self._abort_overtaken()
        self._reporter.submit(REGISTRATION, self._hello)
        self._reporter.flush(probe=True)
        log = structlog.get_logger()
        log.info("agent_started", host=self.host, boot_id=self.boot_id, taken_up=len(owed))

    def receive(self, instruction: Instruction) -> None:
        """Return once the instruction is safe in the journal; the work is done then or later.

        Raises `Unreachable` (`agent_stopped`: give it back to the broker) when this agent takes
        nothing more, `Broken` when its journal failed.
        """
        if not self.running:
            message = f"the agent of {self.host} takes no more work"
            raise self._record.failure or Unreachable("agent_stopped", message, host=self.host)
        if instruction.verb == REGISTRATION_VERDICT:
            self._answered(parse(RegistrationAnswer, instruction.args))
            return
        if self._is_astray(instruction):
            return
        judgement = self._record.accept(instruction, self._stale(instruction))
        if judgement is Verdict.NEW:
            self._lanes.put(instruction.instance_id, instruction)
            self._abort_overtaken()
        elif isinstance(judgement, Reply):
            self._submit(judgement)
            self._flush_elsewhere()

    def hear(self, canary: Canary) -> None:
        """Note that a canary came through the queue: the next heartbeat says so."""
        self._watch.hear(canary)

    def heartbeat(self) -> None:
        """Say that the host lives, and do what is due: unsent replies, manifest, compaction.

        Called every `heartbeat_s` by whoever owns the agent; does nothing for one that does not
        run. Raises `Broken` when the journal failed: the process should end then.
        """
        if self._record.failure is not None:
            self.kill()
            raise self._record.failure
        if not self.running:
            return
        self._abort_overtaken()
        self._watch.abort_hung(self._fenced.abort)
        self._lanes.release_providers()
        self._reporter.submit(HEARTBEAT, lambda: self._watch.heartbeat(self._sender))
        now = self.clock()
        if now >= self._manifest_at:
            self._manifest_at = now + self.settings.manifest_s
            self._report_guests()
        self._reporter.flush(probe=True)
        self._record.compact(self._tracker.tracked.guests.keys())

    def drain(self, timeout_s: float) -> bool:
        """Finish and report what runs, take nothing new; return whether that was done in time.

        What has not begun stays in the journal for the next start. What does not end in time
        is cut off, as by `kill`.
        """
        with self._phase_lock:
            if self._phase is _Phase.RUNNING:
                self._phase = _Phase.DRAINING
        self._lanes.close()
        idle = self._lanes.wait_idle(timeout_s)
        self._reporter.flush(probe=True)
        self.kill()
        if self._record.failure is None:
            self._record.sync()
        return idle

    def kill(self) -> None:
        """Die at once: nothing more is written, sent or asked of the hypervisor.

        Journal and hypervisor stay as they are; calls under way are aborted.
        """
        with self._phase_lock:
            self._phase = _Phase.DEAD
        self._record.close()
        self._stopped.set()
        self._lanes.close()
        self._reporter.close()
        if not self._fenced.cut(ABORT_TIMEOUT_S):
            structlog.get_logger().warning("hypervisor_call_will_not_end", host=self.host)

    def usage(self) -> dict[str, Usage]:
        """Return what is there, kept back and used of each resource class of the host."""
        return usage(self._tracker.tracked, self._reserved())

    def degraded(self) -> dict[str, str]:
        """Return the instances whose accounting is wrong, and why."""
        return dict(self._tracker.tracked.degraded)

    def _answered(self, answer: RegistrationAnswer) -> None:
        """Register anew where that is asked, or say why this worker may not serve the host.

        What is for another life is left alone: two workers may read one queue by mistake.
        """
        if answer.boot_id != self.boot_id:
            return
        if answer.outcome == "again":
            self._sender.replaces = answer.replaces
            self._reporter.submit(REGISTRATION, self._hello)
            self._flush_elsewhere()
            return
        reason = answer.reason or f"{self.host} is served by another worker"
        structlog.get_logger().error("worker_refused", host=self.host, reason=reason)
        self.on_refused(HostRefused("worker_refused", reason, host=self.host))

    def _is_astray(self, instruction: Instruction) -> bool:
        """Say whether an instruction is for somebody else, and answer where the host is right.

        One for another host is that host's to answer: it is asked again.
        """
        host = instruction.host or self.host
        own = self._record.started.worker_id
        if host == self.host and instruction.worker_id in (None, own):
            return False
        message = f"it is for {host}, worker {instruction.worker_id}: this is {self.host}, {own}"
        structlog.get_logger().warning("instruction_astray", host=self.host, reason=message)
        if host == self.host:
            error = HostRefused("another_worker", f"the instruction: {message}", host=host)
            self._submit(self._reply(instruction, "refused", error))
            self._flush_elsewhere()
        return True

    def _work(self, instruction: Instruction) -> None:
        if self._phase is _Phase.DEAD:
            return
        if self._record.overtaken(instruction):
            reply = self._stale(instruction)
        else:
            reply = self._performed(instruction)
        if not self._record.finish(reply):
            return
        self._submit(reply)
        self._reporter.flush()
        structlog.get_logger().info(
            "instruction_done",
            host=self.host,
            verb=instruction.verb,
            instance_id=instruction.instance_id,
            operation_id=instruction.token.operation_id,
            outcome=reply.outcome,
            code=reply.error["code"] if reply.error else None,
        )

    def _performed(self, instruction: Instruction) -> Reply:
        self.on_begin(instruction)
        on_progress = partial(self._progress, instruction)
        work = Work(instruction, self._fenced, self._tracker, self.clock(), on_progress)
        again, key = retrying(self.settings, self._stopped), token_key(instruction.token)
        try:
            result = again(perform, work)
        except HostRefused as error:
            # A refusal says of this attempt that it changed nothing, of an earlier one nothing.
            sure = again.statistics["attempt_number"] == 1 and key not in self._taken_up
            return self._reply(instruction, "refused" if sure else "failed", error)
        except ConductorError as error:
            return self._reply(instruction, "failed", error)
        except AgentDead:
            return self._stale(instruction)
        except Exception as error:  # noqa: BLE001 - a defect in one action still owes its answer
            return self._reply(instruction, "failed", self._defect(instruction, error))
        return Reply(token=instruction.token, sender=self.host, outcome="done", result=result)

    def _defect(self, instruction: Instruction, error: Exception) -> Broken:
        """Keep what was raised on the host: it may name its paths, keys and addresses."""
        operation, raised = instruction.token.operation_id, type(error).__name__
        structlog.get_logger().error(
            "action_defect",
            host=self.host,
            verb=instruction.verb,
            instance_id=instruction.instance_id,
            operation_id=operation,
            exc_info=error,
        )
        message = f"{instruction.verb} met a defect ({raised}): the log of {self.host} has it"
        return Broken("defect", message, host=self.host, verb=instruction.verb, raised=raised)

    def _abort_overtaken(self) -> None:
        """Abort what runs where something waits behind it that must not.

        Repeated at every heartbeat, since an abort that comes before its call does nothing.
        """
        for lane, running, waiting in self._lanes.held_up():
            if any(interrupts(operation, running) for operation in waiting):
                self._fenced.abort(InstanceId(lane))

    def _report_guests(self) -> None:
        """List the guests where no hanging delays anybody; a slow list may be out of date."""
        if self.executor is None:
            return self._reporter.submit(INVENTORY_REPORT, self._manifest)

        def post(outgoing: OutgoingMessage | None) -> None:
            if outgoing is None:
                self._manifest_at = self.clock()
                return
            self._reporter.submit(INVENTORY_REPORT, lambda: outgoing)
            self._reporter.flush()

        return self._watch.list_guests(self._manifest, lambda: self._record.finished, post)

    def _stale(self, instruction: Instruction) -> Reply:
        return Reply(token=instruction.token, sender=self.host, outcome="stale")

    def _reply(
        self,
        instruction: Instruction,
        outcome: Literal["refused", "failed"],
        error: ConductorError,
    ) -> Reply:
        return Reply(
            token=instruction.token, sender=self.host, outcome=outcome, error=error.to_json()
        )

    def _progress(self, instruction: Instruction, percent: int) -> None:
        if self._phase is _Phase.DEAD:
            return
        self._lanes.touch(instruction.instance_id)
        # Whatever came between the start of the lane and that of the call was not heard then.
        self._abort_overtaken()
        progress = Progress(token=instruction.token, sender=self.host, percent=percent)
        key = f"{PROGRESS} {token_key(instruction.token)}"
        self._reporter.submit(key, lambda: progress_message(progress))
        self._flush_elsewhere()

    def _submit(self, reply: Reply) -> None:
        self._reporter.submit(token_key(reply.token), lambda: reply_message(reply))

    def _flush_elsewhere(self) -> None:
        """Post from another thread where there is one: a slow carrier must delay no receive."""
        if self.executor is None:
            self._reporter.flush()
        else:
            self.executor.submit(self._reporter.flush)

    def _posted(self, key: str) -> None:
        if not key.startswith((REGISTRATION, HEARTBEAT, INVENTORY_REPORT, PROGRESS)):
            self._record.reported(key)

    def _hello(self) -> OutgoingMessage:
        started, reserved = self._record.started, self._reserved()
        return registration_message(
            self._sender, started, self.hypervisor, reserved, self._guests()
        )

    def _manifest(self) -> OutgoingMessage:
        return inventory_message(self._sender, self._guests())

    def _guests(self) -> Guests:
        # Fences before guests: a guest may then be newer than its fence says, never older, and
        # a destroy that ends in between cannot look as if its guest had outlived it.
        fences = self._record.done_fences()
        domains = self._tracker.audit(self._fenced.domains)
        return guests_of(domains, fences, sorted(self._tracker.tracked.degraded))

    def _reserved(self) -> Reservation:
        return Reservation(
            memory_mib=self.settings.reserved_memory_mib,
            disk_gb=self.settings.reserved_disk_gb,
            vcpus=self.settings.reserved_vcpus,
        )
