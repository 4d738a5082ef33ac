"""Whatever dies, is repeated or comes late: each effect once, no answer lost, fences kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from models.errors import Unreachable
from models.messages.internal import Instruction
from tests.workers.world import VM, World, default_args, instruction
from workers.actions.action_registry import VERBS
from workers.agent import Agent
from workers.hypervisor.fault_injection import Call, InjectedFault
from workers.hypervisor.ports import GuestDomain
from workers.journal.entries import Accepted, Entry, token_key
from workers.journal.memory_journal import MemoryJournal
from workers.settings import WorkerSettings

INSTANCES = (VM, "another")
POWERED = ("spawn", "reshape", "rebuild")
POWERS = ("running", "shutdown", "nostate")


AFTERWARDS = {
    "destroy": None,
    "power_on": "running",
    "power_off": "shutdown",
    "pause": "paused",
    "suspend": "suspended",
    "reboot": "running",
    "copy": "shutdown",
    "abort_copy": "running",
    "activate": "running",
    "check_source": "running",
}


def could(verb: str, domain: GuestDomain | None) -> bool:
    """Whether the newest verb of a guest must have been done, from what it has left."""
    if verb in {"spawn", "rebuild", "destroy", "check_target", "cache_images"}:
        return True
    if domain is None:
        return False
    if verb == "copy":
        return domain.copied_to is not None
    if verb in {"offer_disk", "take_disk"}:
        return domain.power != "running"
    if verb in {"pause", "suspend", "reboot"}:
        return domain.power == AFTERWARDS[verb]
    return verb not in {"activate", "check_source"} or domain.power == "running"


class Crash(BaseException):
    """The agent has died at this point."""


class CrashingJournal(MemoryJournal):
    """A journal at whose n-th use the agent dies, before or after the use has its effect."""

    def __init__(self) -> None:
        super().__init__()
        self.victim: Agent | None = None
        self.uses_left: int | None = None
        self.after = False
        self.durable: list[Instruction] = []
        self.fresh: list[Instruction] = []

    def write(self, entry: Entry) -> None:
        self._used(lambda: self._write(entry))

    def sync(self) -> None:
        self._used(self._sync)

    def newest(self, instance_id: str) -> Instruction:
        """The newest instruction ever accepted for an instance, whatever compaction forgot."""
        mine = [sent for sent in self.durable + self.fresh if sent.instance_id == instance_id]
        return max(mine, key=lambda sent: sent.token.fence)

    def _write(self, entry: Entry) -> None:
        super().write(entry)
        if isinstance(entry, Accepted):
            self.fresh.append(entry.instruction)

    def _sync(self) -> None:
        super().sync()
        self.durable += self.fresh
        self.fresh = []

    def crash(self) -> None:
        super().crash()
        self.fresh = []

    def rewrite(self, entries: Sequence[Entry]) -> None:
        self._used(lambda: self._rewrite(entries))

    def _rewrite(self, entries: Sequence[Entry]) -> None:
        super().rewrite(entries)
        self._sync()

    def _used(self, use: Callable[[], None]) -> None:
        dies = self.uses_left == 0 and self.victim is not None
        if self.uses_left is not None:
            self.uses_left -= 1
        if dies and not self.after:
            self._die()
        use()
        if dies:
            self._die()

    def _die(self) -> None:
        assert self.victim is not None
        self.uses_left = None
        self.victim.kill()
        self.crash()
        raise Crash


class Someday(Executor):
    """Runs what it is given when told, in any order: every interleaving of threads, repeatable."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs.append(lambda: fn(*args, **kwargs))
        return Future()


class Crashes(RuleBasedStateMachine):
    """An agent that may die at every use of its journal, behind a broker that repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = CrashingJournal()
        self.threads = Someday()
        often = WorkerSettings(retry_wait_s=0, compact_after=0)
        self.world = World(self.injected_fault, self.journal, often, self.threads)
        self.world.spare = self.threads.submit
        self.sent: list[Instruction] = []
        self.queue: list[Instruction] = []
        self.accepted: dict[str, Instruction] = {}
        self.overtaken: list[Call] = []
        self.agent: Agent | None = None
        self.restart()

    def injected_fault(self, call: Call) -> InjectedFault:
        """Every second call loses its answer, after the deed; only the newest may act at all."""
        if self.journal.newest(call.instance_id).verb != call.verb:
            self.overtaken.append(call)
        return InjectedFault(ending="lost_after" if call.nth % 2 == 0 else "done")

    @rule(
        instance_id=st.sampled_from(INSTANCES),
        verb=st.sampled_from(sorted(VERBS)),
        power=st.sampled_from(POWERS),
    )
    def request(self, instance_id: str, verb: str, power: str) -> None:
        """The conductor sends one more instruction; fences grow."""
        args = default_args(verb) | ({"power": power} if verb in POWERED else {})
        self.sent.append(instruction(verb, len(self.sent) + 1, instance_id, args))
        self.queue.append(self.sent[-1])

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """The broker delivers any message that is not acknowledged, and keeps it on a failure."""
        position = data.draw(st.integers(0, len(self.queue) - 1))
        self._hand_in(self.queue[position], acknowledge=True)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        """The broker delivers what it has delivered before."""
        self._hand_in(data.draw(st.sampled_from(self.sent)), acknowledge=False)

    @precondition(lambda self: self.threads.jobs)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """A thread goes on with its job, be it that of an agent long dead."""
        self._run(self.threads.jobs.pop(data.draw(st.integers(0, len(self.threads.jobs) - 1))))

    @rule(uses=st.integers(0, 8), after=st.booleans())
    def doom(self, uses: int, after: bool) -> None:
        """The agent will die at one of its next uses of the journal."""
        self.journal.uses_left, self.journal.after = uses, after

    @precondition(lambda self: self.agent is not None)
    @rule()
    def kill(self) -> None:
        """The agent dies between two uses of the journal."""
        assert self.agent is not None
        self.agent.kill()
        self.journal.crash()
        self.agent = None

    @precondition(lambda self: self.agent is None)
    @rule()
    def restart(self) -> None:
        """A new agent takes over where none runs; it too may die at once."""
        agent = self.world.agent(started=False)
        self.journal.victim = self.agent = agent
        try:
            agent.start()
        except Crash:
            self.agent = None

    @rule(down=st.booleans())
    def broker(self, down: bool) -> None:
        """The broker goes or comes back for what the agent sends."""
        self.world.mailbox.down = down

    @rule(passed_s=st.integers(0, 100))
    def heartbeat(self, passed_s: int) -> None:
        """The timer calls."""
        self.world.clock.now += passed_s
        if self.agent is not None:
            try:
                self.agent.heartbeat()
            except Crash:
                self.agent = None

    @invariant()
    def nothing_overtaken_acts(self) -> None:
        """A call is only made for the newest instruction of its instance."""
        assert self.overtaken == []

    @invariant()
    def answers_of_one_token_never_differ(self) -> None:
        """A token has one answer, however often it is sent."""
        outcomes: dict[str, str] = {}
        for reply in self.world.mailbox.replies():
            key = token_key(reply.token)
            assert outcomes.setdefault(key, reply.outcome) == reply.outcome

    @invariant()
    def no_verb_has_more_effects_than_instructions(self) -> None:
        """An effect needs an accepted instruction of its own."""
        for instance_id in INSTANCES:
            for verb in VERBS:
                accepted = sum(
                    sent.verb == verb and sent.instance_id == instance_id
                    for sent in self.accepted.values()
                )
                assert self.world.effects(verb, instance_id) <= accepted

    def teardown(self) -> None:
        """Everything comes back: now all is answered, and the newest instruction holds."""
        self.journal.uses_left = None
        self.world.mailbox.down = False
        if self.agent is None:
            self.restart()
        for sent in tuple(self.queue):
            self._hand_in(sent, acknowledge=True)
        while self.threads.jobs:
            self._run(self.threads.jobs.pop(0))
        assert self.agent is not None
        self.agent.heartbeat()
        outcomes = {token_key(r.token): r.outcome for r in self.world.mailbox.replies()}
        assert outcomes.keys() == {token_key(sent.token) for sent in self.sent}
        for instance_id in INSTANCES:
            self._newest_holds(instance_id, outcomes)

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Crash:
            self.agent = None

    def _newest_holds(self, instance_id: str, outcomes: Mapping[str, str]) -> None:
        mine = [sent for sent in self.sent if sent.instance_id == instance_id]
        if not mine:
            return
        newest = mine[-1]
        domain = self.world.hypervisor.domain(newest.instance_id)  # type: ignore[arg-type]  # test id
        outcome = outcomes[token_key(newest.token)]
        # Of what a crash has interrupted nobody knows that nothing changed: `failed`.
        assert outcome in (["done"] if could(newest.verb, domain) else ["refused", "failed"])
        if outcome == "done" and newest.verb in (*POWERED, *AFTERWARDS):
            power = newest.args.get("power", AFTERWARDS.get(newest.verb))
            assert (domain.power if domain else None) == power
        if newest.verb == "cache_images":
            assert "img" in self.world.hypervisor.images()

    def _hand_in(self, sent: Instruction, acknowledge: bool) -> None:
        if self.agent is None:
            return
        # Noted before: what is written down may act, even where nobody lives to say so.
        self.accepted[token_key(sent.token)] = sent
        try:
            self.agent.receive(sent)
        except (Crash, Unreachable):
            self.agent = None if not self.agent.running else self.agent
            return
        if acknowledge and sent in self.queue:
            self.queue.remove(sent)


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=200, stateful_step_count=50)
