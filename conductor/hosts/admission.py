"""Who may speak for a host: the worker that registered last, and until it is silent no other.

Order comes from counters: a worker counts its starts (`boot`) and its reports (`sequence`); no
clock of a host decides anything. Whoever is not registered and speaks is asked to register; one
that registers in the place of another has to know whom it replaces, so that no old message that
is still on its way ever does so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from conductor.hosts.reconciliation import with_trouble
from conductor.liveness import silent_before
from conductor.store import Heartbeat, Registration, UnitOfWork
from models.ids import compute_queue
from models.messages.internal import (
    REGISTRATION_VERDICT,
    HostRegistration,
    Instruction,
    OutgoingMessage,
    RegistrationAnswer,
    Token,
    instruction_message,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The worker serves the host from here on."""


@dataclass(frozen=True, slots=True)
class Again:
    """It may serve the host once it has answer_body that it knows whom it replaces."""

    replaces: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """It does not serve the host; `of` is the host whose operator should know."""

    reason: str
    of: str


Verdict: TypeAlias = Admitted | Again | Refused


def judge(
    host_registration: HostRegistration, known: Registration | None, *, alive: bool
) -> Verdict:
    """Say whether a worker that registers serves its host from here on.

    A later start on the same state directory and machine does at once. Any other worker, and any
    earlier start, does when the one that is known has been silent, and only knowingly.
    """
    if (
        known is None
        or known.boot_id == host_registration.boot_id
        or _is_later_start(host_registration, known)
    ):
        return Admitted()
    if alive:
        reason = (
            f"another worker ({known.boot_id[:8]}, machine {known.machine_id[:8]}) serves "
            f"{host_registration.host} and is alive: one worker serves one host"
        )
        return Refused(reason, host_registration.host)
    if host_registration.replaces != known.boot_id:
        return Again(known.boot_id)
    return Admitted()


def namesake(host: str, names: Iterable[str]) -> str | None:
    """Return another host's name that would share this one's queue, None when there is none."""
    queue = compute_queue(host)
    return next((name for name in names if name != host and compute_queue(name) == queue), None)


def admit(uow: UnitOfWork, host_registration: HostRegistration, down_after_s: float) -> Verdict:
    """Judge a worker that registers by what is known; a refusal is kept and logged once."""
    uow.lock(compute_queue(host_registration.host))
    known = uow.registrations.lock(host_registration.host)
    verdict: Verdict = _elsewhere(uow, host_registration) or judge(
        host_registration, known, alive=_is_alive(uow, host_registration.host, down_after_s)
    )
    if isinstance(verdict, Refused):
        _note_refused(uow, host_registration, verdict)
    return verdict


def register_worker(uow: UnitOfWork, host_registration: HostRegistration) -> Registration:
    """Write who serves a host from here on; return it."""
    known = uow.registrations.lock(host_registration.host)
    same = known is not None and known.boot_id == host_registration.boot_id
    fresh = Registration(
        host=host_registration.host,
        worker_id=host_registration.worker_id,
        machine_id=host_registration.machine_id,
        machine_boot=host_registration.machine_boot,
        boot_id=host_registration.boot_id,
        boot=host_registration.boot,
        registered_at=uow.now,
        unexpected=known.unexpected if known else (),
        unexpected_count=known.unexpected_count if known else 0,
        refused=known.refused if known and same else None,
        notes=tuple(note.to_json() for note in host_registration.notes),
    )
    uow.registrations.put(with_trouble(fresh))
    return fresh


def note_report(uow: UnitOfWork, host: str, boot_id: str, sequence: int, *, lists: bool) -> bool:
    """Note the newest report of a life, and of its list of guests; False for an older one."""
    known = uow.heartbeats.lock(host)
    before = known if known is not None and known.boot_id == boot_id else None
    if before is not None and sequence <= (before.listed if lists else before.sequence):
        return False
    beat = known or Heartbeat(host, "compute", uow.now)
    uow.heartbeats.put(
        replace(
            beat,
            seen_at=uow.now if before is None or sequence > before.sequence else beat.seen_at,
            boot_id=boot_id,
            sequence=max(sequence, before.sequence if before else 0),
            listed=sequence if lists else (before.listed if before else 0),
        )
    )
    return True


def is_registered(uow: UnitOfWork, host: str, boot_id: str) -> bool:
    """Say whether this life of a worker is the one that serves a host that there is."""
    beat = uow.heartbeats.lock(host)
    if beat is None or beat.boot_id != boot_id:
        return False
    return uow.hosts.get(host) is not None


def answer(host: str, boot_id: str, verdict: Again | Refused) -> OutgoingMessage:
    """Return what tells one life of a worker that it is not registered, and what it can do."""
    match verdict:
        case Again(replaces):
            answer_body = RegistrationAnswer(boot_id=boot_id, outcome="again", replaces=replaces)
        case Refused(reason):
            answer_body = RegistrationAnswer(boot_id=boot_id, outcome="refused", reason=reason)
    token = Token(operation_id=boot_id, step=REGISTRATION_VERDICT, attempt=1, sequence=1)
    instruction = Instruction(
        token=token, instance_id=boot_id, verb=REGISTRATION_VERDICT, args=answer_body.to_json()
    )
    return replace(instruction_message(host, instruction, boot_id), shown=f"registration of {host}")


def _is_later_start(host_registration: HostRegistration, known: Registration) -> bool:
    same = (host_registration.worker_id, host_registration.machine_id) == (
        known.worker_id,
        known.machine_id,
    )
    return (
        same
        and host_registration.machine_boot == known.machine_boot
        and host_registration.boot > known.boot
    )


def _is_alive(uow: UnitOfWork, host: str, down_after_s: float) -> bool:
    beat = uow.heartbeats.get(host)
    return beat is not None and beat.seen_at >= silent_before(uow, down_after_s)


def _elsewhere(uow: UnitOfWork, host_registration: HostRegistration) -> Refused | None:
    """Refuse a name that shares another host's queue, and a machine that is another host."""
    other = namesake(host_registration.host, uow.hosts.versions())
    if other is not None:
        name = host_registration.host
        reason = f"host is {name}: {other} is known, and both names have the same queue"
        return Refused(reason, other)
    known = uow.registrations.get(host_registration.host)
    if known is not None and known.machine_id == host_registration.machine_id:
        return None
    for field in ("machine_id", "worker_id"):
        for registration in uow.registrations.where(**{field: getattr(host_registration, field)}):
            if (
                registration.host != host_registration.host
                and uow.hosts.get(registration.host) is not None
            ):
                reason = (
                    f"host is {host_registration.host}: its machine is known as "
                    f"{registration.host}; start its worker under that name, or remove "
                    f"{registration.host} first"
                )
                return Refused(reason, registration.host)
    return None


def _note_refused(uow: UnitOfWork, host_registration: HostRegistration, verdict: Refused) -> None:
    known = uow.registrations.lock(verdict.of)
    refused = {
        "host": host_registration.host,
        "boot_id": host_registration.boot_id,
        "machine_id": host_registration.machine_id,
        "at": uow.now,
        "reason": verdict.reason,
    }
    if known is not None:
        before = known.refused or {}
        if (
            before.get("boot_id") == host_registration.boot_id
            and before.get("reason") == verdict.reason
        ):
            return
        uow.registrations.save(with_trouble(replace(known, refused=refused)))
    log.warning("a worker was refused", host=host_registration.host, reason=verdict.reason)
