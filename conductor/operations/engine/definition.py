"""How an operation is defined: its steps in order, each followed by its undo.

    build = Operation("build_instance", Build)

    @build.step
    def claim_host(build: Build, uow: UnitOfWork) -> Outcome[Build]: ...

    @claim_host.reply
    def host_claimed(build: Build, result: Json, uow: UnitOfWork) -> Build: ...

    @claim_host.undo
    def release_claim(build: Build, uow: UnitOfWork) -> Outcome[Build]: ...

A step returns the next state, or a dispatch to a host or the scheduler, or awaits its children.
Its reply function applies the answer to the state; without one the state stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

from pydantic import TypeAdapter

from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.messages.internal import HostRequest
from models.messages.requests import Request

S = TypeVar("S")
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class DispatchToHost(Generic[S]):
    """Work for one host. A host that is down counts as done when `done_if_down`.

    The instruction is posted all the same then: the host obeys it should it come back.
    Without an instance it is not ordered with other instructions for the host. `fence` is said
    only where the instance has no record that could count it.
    """

    state: S
    host: str
    instance_id: str | None
    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    done_if_down: bool = False
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class DispatchToScheduler(Generic[S]):
    """Choose and claim hosts for these instances, all or none."""

    state: S
    host_requests: tuple[HostRequest, ...]
    alternates: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class AwaitChildren(Generic[S]):
    """Wait until every child operation has ended."""

    state: S


Outcome: TypeAlias = S | DispatchToHost[S] | DispatchToScheduler[S] | AwaitChildren[S]
Run = Callable[[S, UnitOfWork], Outcome[S]]
OnReply = Callable[[S, Json, UnitOfWork], S]


class Step(Generic[S]):
    """One step: what it does, what its answer means, and how it is undone."""

    def __init__(self, run: Run[S], *, pivot: bool, retry_from: Step[S] | None) -> None:
        self.name = run.__name__
        self.run = run
        self.pivot = pivot
        self.retry_from = retry_from
        self.on_reply: OnReply[S] | None = None
        self.run_undo: Run[S] | None = None

    def reply(self, on_reply: OnReply[S]) -> OnReply[S]:
        """Register what the reply to this step's dispatch does to the state."""
        self.on_reply = on_reply
        return on_reply

    def undo(self, run: Run[S]) -> Run[S]:
        """Register the undo; it tolerates a step that never happened, or half."""
        self.run_undo = run
        return run


@dataclass(frozen=True, slots=True)
class NewOperation:
    """What `accept` knows of the operation that is being born, and how long hosts may be silent.

    A host that has not been heard of for `down_after_s` is down, for whoever has to know.
    """

    id: str
    request: Request
    down_after_s: float


Accept = Callable[[NewOperation, UnitOfWork], S]
Replay = Callable[[NewOperation, OperationRecord, UnitOfWork], S]
IsMet = Callable[[Request, OperationRecord, UnitOfWork], str | None]
FaultOfChildren = Callable[[S, Sequence[OperationRecord]], Json]
WhenBusy = Literal["reject", "queue", "supersede"]


class Operation(Generic[S]):
    """The definition of one kind of operation: an ordered list of steps over a frozen state.

    `when_busy` says what happens to a request for an instance on which another operation runs:
    it is rejected, waits its turn, or cancels the other and then takes its turn. A `template` is
    not an operation that can be requested: only its variants are.
    """

    def __init__(
        self,
        kind: str,
        state: type[S],
        *,
        version: int = 1,
        when_busy: WhenBusy = "reject",
        deadline_s: float = 3_600.0,
        template: bool = False,
    ) -> None:
        self.kind = kind
        self.template = template
        self.version = version
        self.when_busy: WhenBusy = when_busy
        self.deadline_s = deadline_s
        self.steps: list[Step[S]] = []
        self.run_accept: Accept[S] | None = None
        self.on_failure: Callable[[S, Json, UnitOfWork], None] | None = None
        self.on_given_up: Callable[[S, Json, UnitOfWork], None] | None = None
        self.fault_of_children: FaultOfChildren[S] | None = None
        self.run_replay: Replay[S] | None = None
        self.is_met: IsMet | None = None
        self.describe: Callable[[S], Json] = lambda _: {}
        self._state = state

    @overload
    def step(self, run: Run[S]) -> Step[S]: ...

    @overload
    def step(self, *, retry_from: Step[S]) -> Callable[[Run[S]], Step[S]]: ...

    def step(
        self, run: Run[S] | None = None, *, retry_from: Step[S] | None = None
    ) -> Step[S] | Callable[[Run[S]], Step[S]]:
        """Add a step.

        With `retry_from`, a host's failure here undoes back to that step and goes forward
        from it again, at most `MAX_ATTEMPTS` times in all.
        """
        if run is not None:
            return self._add(run, pivot=False, retry_from=None)

        def add(function: Run[S]) -> Step[S]:
            return self._add(function, pivot=False, retry_from=retry_from)

        return add

    def pivot(self, run: Run[S]) -> Step[S]:
        """Add the step from which there is no way back: from it on, all is tried until done."""
        return self._add(run, pivot=True, retry_from=None)

    def accept(self, run: Accept[S]) -> Accept[S]:
        """Register what turns a valid request into the first state, or raises `Rejected`."""
        self.run_accept = run
        return run

    def replay(self, run: Replay[S]) -> Replay[S]:
        """Register how a replay begins anew, where `accept` would create something new."""
        self.run_replay = run
        return run

    def met(self, run: IsMet) -> IsMet:
        """Register what says, in a sentence, that reality is as requested already; else `None`."""
        self.is_met = run
        return run

    def failed(self, run: Callable[[S, Json, UnitOfWork], None]) -> None:
        """Register what is written, last, when everything has been undone."""
        self.on_failure = run

    def given_up(self, run: Callable[[S, Json, UnitOfWork], None]) -> None:
        """Register what is written when a step behind the pivot cannot be done at all.

        The operation has then failed, in order. Without this it is STUCK.
        """
        self.on_given_up = run

    def children_failed(self, run: FaultOfChildren[S]) -> FaultOfChildren[S]:
        """Register what makes one fault of all children, some of which have failed."""
        self.fault_of_children = run
        return run

    def result(self, describe: Callable[[S], Json]) -> None:
        """Register what other services see as the result."""
        self.describe = describe

    def variant(self, kind: str) -> Operation[S]:
        """Return an operation of another kind with the same steps; its `accept` is its own."""
        other = Operation(kind, self._state, version=self.version, when_busy=self.when_busy)
        other.deadline_s = self.deadline_s
        other.steps = self.steps
        other.on_failure, other.on_given_up = self.on_failure, self.on_given_up
        other.describe = self.describe
        other.is_met = self.is_met
        return other

    def index(self, name: str) -> int:
        """Return the place of a step in the order."""
        return self._places[name]

    def past_pivot(self, name: str) -> bool:
        """Say whether the step is the pivot or behind it."""
        return any(step.pivot for step in self.steps[: self.index(name) + 1])

    def dump(self, state: S) -> dict[str, Any]:
        """Return the state as JSON."""
        dumped: dict[str, Any] = self._adapter.dump_python(state, mode="json")
        return dumped

    def load(self, data: Json) -> S:
        """Return the state that `dump` wrote."""
        return self._adapter.validate_python(data)

    @cached_property
    def _adapter(self) -> TypeAdapter[S]:
        return TypeAdapter(self._state)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {step.name: place for place, step in enumerate(self.steps)}

    def _add(self, run: Run[S], *, pivot: bool, retry_from: Step[S] | None) -> Step[S]:
        step = Step(run, pivot=pivot, retry_from=retry_from)
        self.steps.append(step)
        return step
