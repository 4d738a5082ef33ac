"""An operator's decision that hosts shall obey this database, though they know another, or a newer.

Where an older copy of the database was restored, its id is renewed first: instructions of the time
that is lost may still be on their way, and no worker that obeys the copy may obey those.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from conductor.store import Heartbeat, Identity, UnitOfWork, identity_of
from models.errors import Rejected
from models.messages.internal import (
    TRUST_DATABASE,
    Instruction,
    Token,
    TrustedDatabase,
    instruction_message,
)


def why_distrusted(identity: Identity, obeys: Mapping[str, Any] | None) -> str | None:
    """Return why a worker that says what it `obeys` does not obey this database; None if it does.

    A worker that obeys none yet obeys the first that speaks to it.
    """
    if obeys is None:
        return None
    if obeys["database"] != identity.id:
        return (
            f"its worker obeys the database {obeys['database'][:8]}, "
            f"not this one, {identity.id[:8]}"
        )
    if obeys["outdated"] or obeys["generation"] > identity.generation:
        return (
            f"its worker knows generation {obeys['generation']} of this database, which is at "
            f"{identity.generation}: an older copy was restored"
        )
    return None


def distrusting(uow: UnitOfWork) -> list[Heartbeat]:
    """Return the heartbeats of the hosts that do not obey this database, by name."""
    identity = identity_of(uow)
    beats = uow.heartbeats.where(kind="compute")
    found = [beat for beat in beats if why_distrusted(identity, beat.obeys) is not None]
    return sorted(found, key=lambda beat: beat.name)


def trust_database(uow: UnitOfWork, hosts: Collection[str] | None) -> list[str]:
    """Have these hosts obey this database, all that do not where none are named; return who will.

    Each is told once; it registers anew when it has heard. Raises `Rejected`: `host_unknown`,
    `database_trusted` for a host that obeys it already, and `copy_restored` where only some hosts
    are named though the copy's new id concerns all.
    """
    identity, found = identity_of(uow), {beat.name: beat for beat in distrusting(uow)}
    for name in hosts or ():
        _refuse_content(uow, name, found)
    named = [found[name] for name in (hosts if hosts is not None else found)]
    if any(_knows_newer(identity, beat) for beat in named):
        if hosts is not None and set(hosts) != set(_all_hosts(uow)):
            message = "host: an older copy was restored, which concerns every host: use --all"
            raise Rejected("copy_restored", message, key="host")
        identity = _renewed(uow, identity)
        named = [beat for beat in _all_beats(uow) if beat.obeys is not None]
    for beat in named:
        _notify(uow, beat, identity)
    return [beat.name for beat in named]


def _refuse_content(uow: UnitOfWork, name: str, found: Collection[str]) -> None:
    if uow.hosts.get(name) is None:
        raise Rejected("host_unknown", f"host is {name}: no such host", key="host")
    if name not in found:
        message = f"host is {name}: its worker obeys this database, or none yet"
        raise Rejected("database_trusted", message, key="host")


def _knows_newer(identity: Identity, beat: Heartbeat) -> bool:
    return beat.obeys is not None and beat.obeys["database"] == identity.id


def _renewed(uow: UnitOfWork, identity: Identity) -> Identity:
    """Give the database a new id: from here on it is another than the one it is a copy of."""
    fresh = replace(identity, id=str(uuid.uuid4()), raised_at=uow.now)
    uow.identity.drop(identity.id)
    uow.identity.add(fresh)
    return fresh


def _all_beats(uow: UnitOfWork) -> list[Heartbeat]:
    return uow.heartbeats.where(kind="compute")


def _all_hosts(uow: UnitOfWork) -> list[str]:
    return [beat.name for beat in _all_beats(uow)]


def _notify(uow: UnitOfWork, beat: Heartbeat, identity: Identity) -> None:
    """Send a host the decision; it is about no instance, and counts for what it obeys now."""
    instead_of = (beat.obeys or {}).get("database", "")
    decision = TrustedDatabase(
        database=identity.id, generation=identity.generation, instead_of=instead_of
    )
    decision_id = str(uuid.uuid4())
    token = Token(operation_id=decision_id, step=TRUST_DATABASE, attempt=1, sequence=1)
    instruction = Instruction(
        token=token,
        instance_id=decision_id,
        verb=TRUST_DATABASE,
        args=decision.to_json(),
        host=beat.name,
    )
    message = instruction_message(beat.name, instruction, decision_id)
    uow.post(replace(message, shown=f"trust database {identity.id}"))
