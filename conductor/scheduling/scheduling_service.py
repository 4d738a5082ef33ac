"""The scheduler: selects from the cached fleet, claims in one transaction, replies by outbox."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tenacity

from conductor.scheduling.claim import Claim, ClaimWriter
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet_cache import FleetCache
from conductor.scheduling.host_selection import NoHost, Selection, apply_selection, select_host
from conductor.scheduling.placement_confirmation import confirm_claim
from conductor.scheduling.request.select_hosts import (
    RequestSpecs,
    decision_id,
    decisions_of,
    is_current,
    operations_of,
    still_requested,
    with_move_targets,
)
from conductor.scheduling.request.selection_reply import reply_message
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Decision, Host, Instance, OperationRecord, Store, UnitOfWork
from models.errors import Broken, ConductorError, Conflict, Rejected
from models.lifecycle import OperationState
from models.messages.internal import HostRequest, OutgoingMessage, SelectHosts

if TYPE_CHECKING:
    from conductor.placement.sync.mirror import PlacementMirror


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a whole message fails: the first host request without a host, and its error."""

    host_request: HostRequest
    error: ConductorError
    detail: dict[str, Any]

    def because(self, reason: str) -> Refusal:
        """Return the refusal with a Placement server's earlier one appended to its message."""
        if not reason:
            return self
        error = self.error
        error = type(error)(error.code, f"{error.message}; {reason}", error.key, **error.data)
        return replace(self, error=error)


@dataclass(frozen=True, slots=True)
class _Request:
    """A message that is current, and what it is about; instances and operation are locked."""

    message: SelectHosts
    instances: dict[str, Instance]
    operation: OperationRecord
    operations: Mapping[str, OperationRecord]


class Scheduler:
    """Handles `SelectHosts`. One per process; its threads share one cache of the fleet."""

    def __init__(
        self,
        store: Store,
        settings: SchedulingSettings | None = None,
        on_conflict: Callable[[str], None] = lambda _: None,
        mirror: PlacementMirror | None = None,
    ) -> None:
        """Call `on_conflict` with the code of each conflict, `host_moved` for a refitted host.

        With a `mirror` a claim is replied to only when the Placement server has confirmed it.
        """
        self._store = store
        self._mirror = mirror
        self._on_conflict = on_conflict
        self._settings = settings or SchedulingSettings()
        self._cache = FleetCache(self._settings)
        seed = self._settings.seed
        self._chance = None if seed is None else random.Random(seed)
        # Acquired within the transaction, after its row locks; no row lock is awaited under it.
        self._deciding = threading.Lock()

    def handle(self, message: SelectHosts) -> list[OutgoingMessage]:
        """Select and claim hosts, all or none; return the outgoing messages of the commit.

        Idempotent: a message that is not current any more changes and returns nothing; one that
        was handled before returns the same reply. Raises `Conflict` after too many conflicts in a
        row (the message may simply be redelivered), and `Unreachable`.
        """
        self._learn(message)
        if self._mirror is None:
            return self._decide(message)
        return confirm_claim(message, self._store, self._mirror, self._decide)

    def _decide(self, message: SelectHosts, refused: str = "") -> list[OutgoingMessage]:
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Conflict),
            wait=tenacity.wait_random_exponential(multiplier=0.005, max=0.25),
            stop=tenacity.stop_after_attempt(self._settings.tries),
            after=self._note_conflict,
            reraise=True,
        ):
            with attempt:
                again = attempt.retry_state.attempt_number > 1
                return self._answer(message, refused, again=again)
        return []

    def _learn(self, message: SelectHosts) -> None:
        """Note the host that failed, on a retry: the last of those that were tried."""
        if message.token.attempt > 1 and message.ignored:
            with self._deciding:
                self._cache.fleet.history.note_failed(message.ignored[-1:])

    def _note_conflict(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        if isinstance(error, Conflict):
            self._on_conflict(error.code)

    def _answer(self, message: SelectHosts, refused: str, *, again: bool) -> list[OutgoingMessage]:
        with self._store.begin() as uow:
            # Lock order: instances, the operation, then the cache.
            instances = uow.instances.lock_many(
                host_request.instance_id for host_request in message.host_requests
            )
            operation = uow.operations.lock(message.token.operation_id)
            if operation is None or not is_current(operation, message):
                return []
            if self._mirror is not None and decisions_of(uow, message):
                return []
            request = _Request(
                message, instances, operation, operations_of(uow, message, operation)
            )
            with self._deciding:
                selected = self._select_current(uow, request, again=again)
                fleet = self._cache.fleet
            # Queried only where needed: a second claim would conflict with the first's decisions.
            is_refused = isinstance(selected, Refusal)
            if (again or is_refused) and (before := decisions_of(uow, message)):
                uow.post(reply_message(message, before))
                return list(uow.posted)
            if isinstance(selected, Refusal):
                self._refuse(uow, message, selected.because(refused))
                return list(uow.posted)
            hosts = self._claim(uow, request, selected, fleet)
            outgoing_messages = list(uow.posted)
        with self._deciding:
            self._note_claimed(hosts, selected)
        return outgoing_messages

    def _note_claimed(self, hosts: Iterable[Host], selections: Iterable[Selection]) -> None:
        """Bring the cache to what was committed, without reading it back."""
        self._cache.put(hosts)
        fleet = self._cache.fleet
        for selection in selections:
            fleet.history.note_placed(selection.spec, selection.host.name)
            fleet.providers = fleet.providers.allocate(selection.candidate.provider_amounts)

    def _select_current(
        self, uow: UnitOfWork, request: _Request, *, again: bool
    ) -> tuple[Selection, ...] | Refusal:
        """Return the selections; a refusal is made only from a fresh cache."""
        fresh = self._cache.refresh(uow)
        if again and not fresh:
            self._cache.reread(uow)
        selected = self._select(uow, request)
        if isinstance(selected, Refusal) and not (fresh or again):
            seen = self._cache.revision
            self._cache.reread(uow)
            if self._cache.revision != seen:
                return self._select(uow, request)
        return selected

    def _select(self, uow: UnitOfWork, request: _Request) -> tuple[Selection, ...] | Refusal:
        """Select a host for every host request, each as if those before it had been claimed."""
        instances = with_move_targets(uow, request.message, request.instances)
        requested = still_requested(request.message, instances, request.operations)
        specs = RequestSpecs(uow, request.message)
        selections: list[Selection] = []
        with self._cache.fleet.rehearsal():
            for host_request in requested:
                selection = self._select_one(
                    specs, instances[host_request.instance_id], host_request
                )
                if not isinstance(selection, Selection):
                    return _refusal(host_request, selection, len(selections), len(requested))
                selections.append(selection)
                if len(selections) < len(requested):
                    specs.joined(selection.spec, selection.host.name)
                    apply_selection(self._cache.fleet, selection, uow.now)
        return tuple(selections)

    def _select_one(
        self, specs: RequestSpecs, instance: Instance, host_request: HostRequest
    ) -> Selection | NoHost | ConductorError:
        fleet, fits = self._cache.fleet, self._cache.fits
        try:
            spec = specs.of(instance, forced=host_request.force)
            fleet.history.note_requested(spec.shape)
            return select_host(spec, fleet, self._settings, fits, self._chance)
        except (Rejected, Broken) as error:
            return error

    def _claim(
        self, uow: UnitOfWork, request: _Request, selections: Sequence[Selection], fleet: Fleet
    ) -> Iterable[Host]:
        """Write claims, decisions and the reply; return the hosts as written.

        A message that was handled before has decisions already: adding them again raises
        `Conflict`, which rolls the transaction back.
        """
        message = request.message
        writer = ClaimWriter(uow, fleet, message, pack=self._settings.pack)
        claims = writer.write(selections, request.instances)
        for _ in range(writer.refitted):
            self._on_conflict("host_moved")
        uow.operations.save(
            replace(request.operation, state=OperationState.CLAIMED, updated_at=uow.now)
        )
        requests = {request.instance_id: request for request in message.host_requests}
        decisions = [
            _claimed(message, requests[claim.selection.spec.instance_id], claim, uow.now)
            for claim in claims
        ]
        uow.decisions.add_many(decisions)
        if self._mirror is None:
            uow.post(reply_message(message, decisions))
        return writer.hosts.values()

    def _refuse(self, uow: UnitOfWork, message: SelectHosts, refusal: Refusal) -> None:
        """Write the decision on a refusal, and the reply; `Conflict` as in `_claim`."""
        detail = {**refusal.detail, "error": refusal.error.to_json()}
        decisions = [_decision(message, refusal.host_request, None, detail, uow.now)]
        uow.decisions.add_many(decisions)
        uow.post(reply_message(message, decisions))


def _refusal(
    host_request: HostRequest,
    answer: NoHost | ConductorError,
    placed: int,
    requested: int,
) -> Refusal:
    if isinstance(answer, ConductorError):
        return Refusal(host_request, answer, {})
    place = f"instance {placed + 1} of {requested}: " if requested > 1 else ""
    return Refusal(host_request, answer.error(place), answer.to_json())


def _claimed(message: SelectHosts, host_request: HostRequest, claim: Claim, now: float) -> Decision:
    detail = claim.selection.to_json()
    others = (claim.selection.host.name, *claim.selection.alternates)
    detail["alternates"] = [name for name in others if name != claim.host]
    return _decision(message, host_request, claim.host, detail, now)


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
