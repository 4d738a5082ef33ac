"""The scheduling task: decide from the view, claim in one transaction, answer by the outbox."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tenacity

from conductor.scheduling.claim import Claim, Claimed
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet_refresh import FleetView
from conductor.scheduling.host_selection import NoHost, Selection, choose, put_on
from conductor.scheduling.placement_confirmation import vouched
from conductor.scheduling.request.select_hosts import (
    RequestSpecs,
    decided,
    decision_id,
    is_current,
    moving,
    operations_of,
    still_requested,
)
from conductor.scheduling.request.selection_reply import reply_message
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import Decision, Host, Instance, OperationRecord
from models.errors import Broken, ConductorError, Conflict, Rejected
from models.lifecycle import OperationState
from models.messages.internal import HostRequest, OutgoingMessage, SelectHosts

if TYPE_CHECKING:
    from conductor.placement.sync.mirror import PlacementMirror


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the whole ask fails: the first instance that found no host, and its error."""

    host_request: HostRequest
    error: ConductorError
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the view says: a host for every instance that is still wanted, or the refusal."""

    wanted: tuple[HostRequest, ...]
    selections: tuple[Selection, ...] = ()
    refusal: Refusal | None = None

    def told(self, why: str) -> Plan:
        """Return the plan with what a Placement server said before it, should it be a refusal."""
        if self.refusal is None or not why:
            return self
        error = self.refusal.error
        said = type(error)(error.code, f"{error.message}; {why}", error.key, **error.data)
        return replace(self, refusal=replace(self.refusal, error=said))


@dataclass(frozen=True, slots=True)
class _Asking:
    """A message that is waited for, with whom it is about: instances and operation are locked."""

    message: SelectHosts
    instances: dict[str, Instance]
    operation: OperationRecord
    operations: Mapping[str, OperationRecord]


class Scheduler:
    """Answers `SelectHosts`. One per process; its threads share one view of the fleet."""

    def __init__(
        self,
        store: Store,
        settings: SchedulingSettings | None = None,
        on_conflict: Callable[[str], None] = lambda _: None,
        mirror: PlacementMirror | None = None,
    ) -> None:
        """Tell `on_conflict` the code of each conflict, `host_moved` where a host was refitted.

        With a `partner` a claim is answered only when the Placement server has it too.
        """
        self._store = store
        self._partner = mirror
        self._on_conflict = on_conflict
        self._settings = settings or SchedulingSettings()
        self._view = FleetView(self._settings)
        seed = self._settings.seed
        self._chance = None if seed is None else random.Random(seed)
        # Held while deciding, within the transaction; whoever holds it waits for no lock there.
        self._deciding = threading.Lock()

    def handle(self, message: SelectHosts) -> list[OutgoingMessage]:
        """Choose and claim hosts, all or none; return the letters that the commit promised.

        A message that is no longer waited for changes nothing and returns nothing; one that was
        answered before returns the same answer. Raises `Conflict` when others were faster too
        many times in a row (the message may simply be delivered again), and `Unreachable`.
        """
        self._learn(message)
        if self._partner is None:
            return self._decide(message)
        return vouched(message, self._store, self._partner, self._decide)

    def _decide(self, message: SelectHosts, told: str = "") -> list[OutgoingMessage]:
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Conflict),
            wait=tenacity.wait_random_exponential(multiplier=0.005, max=0.25),
            stop=tenacity.stop_after_attempt(self._settings.tries),
            after=self._note_conflict,
            reraise=True,
        ):
            with attempt:
                again = attempt.retry_state.attempt_number > 1
                return self._answer(message, told, again=again)
        return []

    def _learn(self, message: SelectHosts) -> None:
        """Remember the host that made somebody ask again: the last of those that were tried."""
        if message.token.attempt > 1 and message.ignored:
            with self._deciding:
                self._view.fleet.habits.note_failed(message.ignored[-1:])

    def _note_conflict(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        if isinstance(error, Conflict):
            self._on_conflict(error.code)

    def _answer(self, message: SelectHosts, told: str, *, again: bool) -> list[OutgoingMessage]:
        with self._store.begin() as uow:
            # Instances before the operation, as everybody locks them; both before the view, which
            # nobody holds while waiting for a lock of the database.
            instances = uow.instances.lock_many(
                host_request.instance_id for host_request in message.host_requests
            )
            operation = uow.operations.lock(message.token.operation_id)
            if operation is None or not is_current(operation, message):
                return []
            if self._partner is not None and decided(uow, message):
                return []
            asking = _Asking(message, instances, operation, operations_of(uow, message, operation))
            with self._deciding:
                plan = self._current_plan(uow, asking, again=again).told(told)
                fleet = self._view.fleet
            # Asked only where it shows: a second claim would meet the first one's decisions.
            if (again or plan.refusal) and (before := decided(uow, message)):
                uow.post(reply_message(message, before))
                return list(uow.posted)
            hosts = self._settle(uow, asking, plan, fleet)
            outgoing_messages = list(uow.posted)
        with self._deciding:
            self._view.put(hosts)
            for chosen in plan.selections:
                self._view.fleet.habits.note_placed(chosen.spec, chosen.host.name)
                self._view.fleet.beside = self._view.fleet.beside.charged(chosen.shares.beside)
        return outgoing_messages

    def _current_plan(self, uow: UnitOfWork, asking: _Asking, *, again: bool) -> Plan:
        """Return the plan; a "no" is given only from what the store says now."""
        fresh = self._view.refresh(uow)
        if again and not fresh:
            self._view.look_again(uow)
        plan = self._plan(uow, asking)
        if plan.refusal is not None and not (fresh or again):
            seen = self._view.revision
            self._view.look_again(uow)
            if self._view.revision != seen:
                return self._plan(uow, asking)
        return plan

    def _plan(self, uow: UnitOfWork, asking: _Asking) -> Plan:
        instances = moving(uow, asking.message, asking.instances)
        wanted = still_requested(asking.message, instances, asking.operations)
        specs = RequestSpecs(uow, asking.message)
        selections: list[Selection] = []
        with self._view.fleet.rehearsal():
            for host_request in wanted:
                chosen = self._choose(specs, instances[host_request.instance_id], host_request)
                if not isinstance(chosen, Selection):
                    return Plan(
                        wanted, refusal=_refusal(host_request, chosen, len(selections), wanted)
                    )
                selections.append(chosen)
                if len(selections) < len(wanted):
                    specs.joined(chosen.spec, chosen.host.name)
                    put_on(self._view.fleet, chosen, uow.now)
        return Plan(wanted, tuple(selections))

    def _choose(
        self, specs: RequestSpecs, instance: Instance, host_request: HostRequest
    ) -> Selection | NoHost | ConductorError:
        fleet, fits = self._view.fleet, self._view.fits
        try:
            spec = specs.of(instance, forced=host_request.force)
            fleet.habits.note_asked(spec.shape)
            return choose(spec, fleet, self._settings, fits, self._chance)
        except (Rejected, Broken) as error:
            return error

    def _settle(self, uow: UnitOfWork, asking: _Asking, plan: Plan, fleet: Fleet) -> Iterable[Host]:
        """Write the plan and the reply; return the hosts as written.

        Where the same message was answered before its decisions exist, which is a `Conflict` that
        takes everything here back.
        """
        message, operation = asking.message, asking.operation
        if plan.refusal is not None:
            decisions, hosts = [_refused(message, plan.refusal, uow.now)], {}
        else:
            claim = Claim(uow, fleet, message, pack=self._settings.pack)
            claimed = claim.write(plan.selections, asking.instances)
            for _ in range(claim.refitted):
                self._on_conflict("host_moved")
            decisions = [
                _chosen(message, host_request, item, uow.now)
                for host_request, item in zip(plan.wanted, claimed, strict=True)
            ]
            hosts = claim.hosts
            uow.operations.save(
                replace(operation, state=OperationState.CLAIMED, updated_at=uow.now)
            )
        uow.decisions.add_many(decisions)
        if self._partner is None or plan.refusal is not None:
            uow.post(reply_message(message, decisions))
        return hosts.values()


def _refusal(
    host_request: HostRequest,
    answer: NoHost | ConductorError,
    placed: int,
    wanted: Sequence[HostRequest],
) -> Refusal:
    if isinstance(answer, ConductorError):
        return Refusal(host_request, answer, {})
    place = f"instance {placed + 1} of {len(wanted)}: " if len(wanted) > 1 else ""
    return Refusal(host_request, answer.error(place), answer.to_json())


def _refused(message: SelectHosts, refusal: Refusal, now: float) -> Decision:
    detail = {**refusal.detail, "error": refusal.error.to_json()}
    return _decision(message, refusal.host_request, None, detail, now)


def _chosen(
    message: SelectHosts, host_request: HostRequest, claimed: Claimed, now: float
) -> Decision:
    detail = claimed.selection.to_json()
    others = (claimed.selection.host.name, *claimed.selection.alternates)
    detail["alternates"] = [name for name in others if name != claimed.host]
    return _decision(message, host_request, claimed.host, detail, now)


def _decision(
    message: SelectHosts,
    host_request: HostRequest,
    host: str | None,
    detail: dict[str, Any],
    now: float,
) -> Decision:
    identity = decision_id(message, host_request.instance_id)
    detail = {"sequence": message.token.sequence, **detail}
    return Decision(
        identity, host_request.operation_id, host_request.instance_id, now, host, detail
    )
