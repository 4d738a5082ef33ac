"""The agent of one host: accepts instructions, carries each out once, and reports the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from threading import Event, Lock

import structlog

from models.errors import HostRefused, Unreachable
from models.ids import HostName, InstanceId
from models.messages.internal import (
    REGISTRATION_VERDICT,
    TRUST_DATABASE,
    Canary,
    Instruction,
    OutgoingMessage,
    Reply,
)
from workers.agent_record import Record
from workers.agent_reports import AgentReports, reservation
from workers.call_watchdog import (
    CallWatchdog,
    SingleFlight,
    hang_after_s,
    interrupts,
    is_urgent,
)
from workers.hypervisor.fenced_hypervisor import FencedHypervisor
from workers.hypervisor.ports import Hypervisor
from workers.instruction_execution import InstructionExecution
from workers.journal.ports import Journal
from workers.keyed_executor import KeyedExecutor, Policy, in_a_thread
from workers.obedience import Obedience
from workers.reporter import Post, retrying
from workers.settings import HOUR_S, WorkerSettings
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
    done by the calling thread, in order. `on_begin` is called with each instruction that is begun,
    again after a restart; `on_refused` with why another worker serves the host, or this machine
    is another host. `spare` runs what must not wait for a thread of the executor, all of which
    may hang.
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
        self._phase = _Phase.NEW
        self._phase_lock = Lock()
        self._stopped = Event()
        self._inventory_due_at = self._images_due_at = 0.0
        self._reserved = reservation(self.settings)
        self._fenced = FencedHypervisor(self.hypervisor)
        self._record = Record(self.journal, self.settings, self.clock)
        self._obedience = Obedience(self.host, self._record)
        self._tracker = Tracker(self.hypervisor.hardware())
        attempts = partial(retrying, self.settings, self._stopped)
        self._execution = InstructionExecution(
            self.host, self._fenced, self._tracker, self.clock, attempts
        )
        self._reports = AgentReports(
            self.host,
            self._fenced,
            self._record,
            self._tracker,
            self._reserved,
            self.post,
            attempts(),
            self.executor,
        )
        # No step of the clock on the wall makes a call look as if it hung.
        ticks = time.monotonic if self.clock is time.time else self.clock
        policy: Policy[Instruction] = Policy(is_urgent, hang_after_s, ticks, self.spare)
        self._calls = KeyedExecutor[Instruction](
            self.executor, self.settings.concurrency, self._work, policy
        )
        listing = SingleFlight(ticks, self.spare)
        self._watchdog = CallWatchdog(self._calls, self.settings, listing)

    @property
    def boot_id(self) -> str:
        """What tells this life of the host's agent from every other."""
        return self._reports.boot_id

    @property
    def running(self) -> bool:
        """Whether the agent takes work."""
        return self._phase is _Phase.RUNNING

    def start(self) -> None:
        """Resume from the journal: send the replies that it has, carry out the rest, register.

        Raises `Rejected` for a host that cannot be offered as it says it is, and what
        journal and hypervisor raise. A carrier that is down is no error: the messages wait.
        """
        self._reports.refuse_incomplete()
        self._record.load()
        self._tracker.audit(self._fenced.domains)
        self._inventory_due_at = self.clock() + self.settings.manifest_s
        self._phase = _Phase.RUNNING
        self._fenced.watch(self._guest_changed)
        for reply in self._record.unreported():
            self._reports.submit_reply(reply)
        owed = self._record.owed()
        for instruction in owed:
            self._calls.put(instruction.instance_id, instruction)
        self._abort_overtaken()
        self._age_out_images(self.clock())
        self._reports.submit_registration()
        self._reports.flush(probe=True)
        log = structlog.get_logger()
        log.info("agent_started", host=self.host, boot_id=self.boot_id, resumed=len(owed))

    def receive(self, instruction: Instruction) -> None:
        """Return once the instruction is safe in the journal; the work is done then or later.

        Raises `Unreachable` (`agent_stopped`: give it back to the broker) when this agent takes
        nothing more, `Broken` when its journal failed.
        """
        if not self.running:
            message = f"the agent of {self.host} takes no more work"
            raise self._record.failure or Unreachable("agent_stopped", message, host=self.host)
        if instruction.verb == REGISTRATION_VERDICT:
            if refusal := self._reports.registration_answered(instruction):
                self.on_refused(refusal)
            return
        if instruction.verb == TRUST_DATABASE:
            if self._obedience.decided(instruction):
                self._reports.submit_registration()
                self._reports.flush_elsewhere()
            return
        if self._is_astray(instruction):
            return
        if disobeyed := self._obedience.refusal(instruction):
            self._refuse(instruction, disobeyed)
            return
        accepted = self._record.accept(instruction, self._execution.stale_reply(instruction))
        if isinstance(accepted, Reply):
            self._reports.submit_reply(accepted)
            self._reports.flush_elsewhere()
        elif accepted:
            self._calls.put(instruction.instance_id, instruction)
            self._abort_overtaken()

    def hear(self, canary: Canary) -> None:
        """Note that a canary came through the queue, and of which database: heartbeats say so."""
        self._watchdog.hear(canary)
        self._obedience.hear(canary)

    def heartbeat(self) -> None:
        """Report that the host lives, and do what is due: unsent reports, inventory, compaction.

        Called every `heartbeat_s` by whoever owns the agent; does nothing for one that does not
        run. Raises `Broken` when the journal failed: the process should end then.
        """
        if self._record.failure is not None:
            self.kill()
            raise self._record.failure
        if not self.running:
            return
        self._abort_overtaken()
        self._watchdog.abort_hung(self._fenced.abort)
        self._calls.start_delayed()
        self._reports.submit_heartbeat(self._watchdog.heartbeat)
        now = self.clock()
        if now >= self._inventory_due_at:
            self._inventory_due_at = now + self.settings.manifest_s
            self._report_inventory()
        self._age_out_images(now)
        self._reports.flush(probe=True)
        self._record.compact(self._tracker.tracked.guests.keys())

    def drain(self, timeout_s: float) -> bool:
        """Finish and report what runs, take nothing new; return whether that was done in time.

        What has not begun stays in the journal for the next start. What does not end in time
        is cut off, as by `kill`.
        """
        with self._phase_lock:
            if self._phase is _Phase.RUNNING:
                self._phase = _Phase.DRAINING
        self._calls.close()
        idle = self._calls.wait_idle(timeout_s)
        self._reports.flush(probe=True)
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
        self._calls.close()
        self._reports.close()
        if not self._fenced.cut(ABORT_TIMEOUT_S):
            structlog.get_logger().warning("hypervisor_call_will_not_end", host=self.host)

    def usage(self) -> dict[str, Usage]:
        """Return what is there, kept back and used of each resource class of the host."""
        return usage(self._tracker.tracked, self._reserved)

    def degraded(self) -> dict[str, str]:
        """Return the instances whose accounting is wrong, and why."""
        return dict(self._tracker.tracked.degraded)

    def _is_astray(self, instruction: Instruction) -> bool:
        """Say whether an instruction is for somebody else; refuse it where the host is right.

        One for another host is that host's to answer: the conductor dispatches it again.
        """
        host = instruction.host or self.host
        own = self._record.started.worker_id
        if host == self.host and instruction.worker_id in (None, own):
            return False
        message = f"it is for {host}, worker {instruction.worker_id}: this is {self.host}, {own}"
        structlog.get_logger().warning("instruction_astray", host=self.host, reason=message)
        if host == self.host:
            error = HostRefused("another_worker", f"the instruction: {message}", host=host)
            self._refuse(instruction, error)
        return True

    def _refuse(self, instruction: Instruction, error: HostRefused) -> None:
        self._reports.submit_reply(self._execution.error_reply(instruction, "refused", error))
        self._reports.flush_elsewhere()

    def _work(self, instruction: Instruction) -> None:
        if self._phase is _Phase.DEAD:
            return
        if self._record.overtaken(instruction):
            reply = self._execution.stale_reply(instruction)
        else:
            self.on_begin(instruction)
            reply = self._execution.execute(
                instruction,
                self._record.resumed(instruction),
                partial(self._progress, instruction),
            )
        if not self._record.finish(reply):
            return
        self._reports.submit_reply(reply)
        self._reports.flush()
        structlog.get_logger().info(
            "instruction_done",
            host=self.host,
            verb=instruction.verb,
            instance_id=instruction.instance_id,
            operation_id=instruction.token.operation_id,
            outcome=reply.outcome,
            code=reply.error["code"] if reply.error else None,
        )

    def _abort_overtaken(self) -> None:
        """Abort what runs where something waits behind it that must not.

        Repeated at every heartbeat, since an abort that comes before its call does nothing.
        """
        for instance_id, running, waiting in self._calls.blocked():
            if any(interrupts(newer, running) for newer in waiting):
                self._fenced.abort(InstanceId(instance_id))

    def _age_out_images(self, now: float) -> None:
        """Let go of unused images once an hour, where it delays no heartbeat."""
        if now < self._images_due_at:
            return
        self._images_due_at = now + HOUR_S
        work = partial(self._execution.let_go_of_images, self.settings.images_kept_s)
        if self.executor is None:
            work()
        else:
            self.spare(work)

    def _guest_changed(self, instance_id: InstanceId) -> None:
        """Have the next heartbeat list the guests, where one has changed that nobody works on."""
        if self.running and not self._calls.is_busy(instance_id):
            self._inventory_due_at = self.clock()

    def _report_inventory(self) -> None:
        """List the guests where a hang delays nobody else; a slow list may be out of date."""
        if self.executor is None:
            return self._reports.submit_inventory()

        def post(outgoing: OutgoingMessage | None) -> None:
            if outgoing is None:
                self._inventory_due_at = self.clock()
                return
            self._reports.submit_inventory(lambda: outgoing)
            self._reports.flush()

        return self._watchdog.list_guests(
            self._reports.inventory, lambda: self._record.finished, post
        )

    def _progress(self, instruction: Instruction, percent: int) -> None:
        if self._phase is _Phase.DEAD:
            return
        self._calls.touch(instruction.instance_id)
        # What came between the start of the job and that of its call was not aborted then.
        self._abort_overtaken()
        self._reports.submit_progress(instruction, percent)
