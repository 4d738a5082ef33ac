"""Hosts as the conductor knows them: greeted, compared with their manifests, taken in or out.

A host that returns with other hardware is degraded, never overwritten: its guests keep their
places, no new one comes, and an operator decides (`hosts enable` accepts the new hardware
once the host is empty). Other amounts of the same hardware (reserves, ratios, disk) are taken as
they are, also where less is left than is in use.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from conductor.operations.waits import ON_HOST
from conductor.placement.providers import over_committed, provider_id_of, root_of
from conductor.placement.resources import Ratios, inventory_of
from conductor.store.ports import UnitOfWork
from conductor.store.records import Heartbeat, Host, Instance, Inventory
from models.errors import Rejected
from models.hardware.accounting import same_hardware
from models.hardware.topology import HostTopology
from models.lifecycle import UNFINISHED, InstanceState, PowerState
from models.messages.hardware import host_from_json
from models.messages.letters import (
    Domain,
    Hello,
    Instruction,
    Letter,
    Manifest,
    Progress,
    Token,
    instruction_letter,
)

log = structlog.get_logger(__name__)

CHANGED_HARDWARE = "hardware changed"
BAD_ACCOUNTING = "accounting degraded"
GUEST_MISSING = "guest_missing"
SETTLED_S = 30.0
"""How long an instance must have been left alone before a host's word changes its state."""

_MAY_RUN = (InstanceState.ACTIVE, InstanceState.STOPPED)


def greet(uow: UnitOfWork, hello: Hello, ratios: Ratios) -> None:
    """Take in a host that has started.

    Everything it was asked and has not answered is sent again: its memory and its messages may
    be gone, its journal tells it what it has done already.
    """
    topology = host_from_json(hello.hardware)
    inventory = inventory_of(topology, hello.disk_gb, hello.reserved, ratios)
    known = uow.hosts.lock(hello.host)
    if known is None:
        _refuse_taken_name(uow, hello.host)
        uow.hosts.add(_new_host(uow, hello, topology, inventory))
    else:
        returned = _returned(known, hello, topology, inventory, uow.now)
        _warn_of_too_little(known, returned)
        uow.hosts.save(returned)
    manifest = Manifest(
        host=hello.host,
        boot_id=hello.boot_id,
        taken_at=hello.taken_at,
        domains=hello.domains,
        accounting_degraded=hello.accounting_degraded,
    )
    reconcile(uow, manifest)
    for record in uow.operations.where(waiting_on=ON_HOST + hello.host, ended_at=None):
        if record.waiting is not None:
            uow.post(Letter(**record.waiting["letter"]))


def heard_of(uow: UnitOfWork, host: str, reported_at: float = 0.0) -> None:
    """Note that a host lives, and how new its newest list of guests is."""
    known = uow.heartbeats.lock(host)
    newest = max(reported_at, known.reported_at if known else 0.0)
    uow.heartbeats.put(Heartbeat(host, "compute", uow.now, newest))


def reconcile(uow: UnitOfWork, manifest: Manifest) -> None:
    """Compare what a host has with what it should have: drop strays, note what is missing.

    A list that was made before one that has been taken in already says nothing any more.
    """
    known = uow.heartbeats.lock(manifest.host)
    heard_of(uow, manifest.host, manifest.taken_at)
    if uow.hosts.get(manifest.host) is None or (
        known is not None and manifest.taken_at < known.reported_at
    ):
        return
    expected = {i.id: i for i in uow.instances.where(host=manifest.host)}
    for domain in manifest.domains:
        instance = expected.get(domain.instance_id) or uow.instances.lock(domain.instance_id)
        if _is_stray(uow, instance, manifest.host):
            _drop(uow, manifest.host, domain, instance)
    present = {domain.instance_id: domain for domain in manifest.domains}
    for instance in expected.values():
        _note_difference(uow, instance, present.get(instance.id))
    _note_accounting(uow, manifest.accounting_degraded, manifest.host)


def note_progress(uow: UnitOfWork, progress: Progress) -> None:
    """Write how far the copy of a live migration is, unless it is old news."""
    record = uow.operations.get(progress.token.operation_id)
    if record is None or record.sequence != progress.token.sequence:
        return
    for move in uow.migrations.where(instance_id=record.instance_id, state=tuple(UNFINISHED)):
        if move.operation_id == record.id and move.progress_percent < progress.percent:
            uow.migrations.save(replace(move, progress_percent=progress.percent))


def set_enabled(uow: UnitOfWork, name: str, *, enabled: bool, reason: str | None) -> Host:
    """Open or close a host for new instances; raise `Rejected` for an unknown one.

    Enabling a degraded host says that a person has looked at it.
    """
    host = must_lock(uow, name)
    changed = replace(
        host,
        enabled=enabled,
        disabled_reason=None if enabled else reason,
        forced_down=host.forced_down and not enabled,
        degraded=None if enabled else host.degraded,
        version=host.version + 1,
    )
    uow.hosts.save(changed)
    return changed


def force_down(uow: UnitOfWork, name: str, reason: str | None) -> Host:
    """Declare a host dead: what waits for it goes on without it."""
    host = must_lock(uow, name)
    changed = replace(
        host, forced_down=True, disabled_reason=reason or "forced down", version=host.version + 1
    )
    uow.hosts.save(changed)
    for record in uow.operations.where(waiting_on=ON_HOST + name, ended_at=None):
        uow.operations.save(replace(record, wake_at=uow.now))
    return changed


def remove(uow: UnitOfWork, name: str) -> None:
    """Forget a host that holds nothing, and its children; raise `Rejected` naming its instances.

    The children are gone with it: a provider tree without its root serves nobody.
    """
    host = must_lock(uow, name)
    children = uow.providers.where(root_id=host.provider_id) if host.provider_id else []
    held = uow.allocations.where(provider=[name, *(each.name for each in children)])
    if held:
        ids = ", ".join(a.consumer_id for a in held[:5])
        message = f"host is {name}: it still holds {len(held)} instances ({ids})"
        raise Rejected("host_in_use", message, key="host")
    for child in children:
        uow.providers.drop(child.id)
    uow.hosts.drop(name)
    uow.heartbeats.drop(name)


def must_lock(uow: UnitOfWork, name: str) -> Host:
    """Return the host, locked; raise `Rejected` when there is none."""
    host = uow.hosts.lock(name)
    if host is None:
        raise Rejected("host_unknown", f"host is {name}: no such host", key="host")
    return host


def _refuse_taken_name(uow: UnitOfWork, name: str) -> None:
    """Refuse a host that is called as a resource provider is: what is held of one is by name."""
    if uow.providers.count(name=name):
        message = f"host is {name}: a resource provider has that name"
        raise Rejected("provider_name_taken", message, key="host")


def _new_host(
    uow: UnitOfWork, hello: Hello, topology: HostTopology, inventory: Mapping[str, Inventory]
) -> Host:
    return Host(
        name=hello.host,
        topology=topology,
        inventory=inventory,
        hypervisor=hello.hypervisor,
        traits=hello.traits,
        boot_id=hello.boot_id,
        created_at=uow.now,
        updated_at=uow.now,
        provider_id=provider_id_of(hello.host),
    )


def _returned(
    known: Host,
    hello: Hello,
    topology: HostTopology,
    inventory: Mapping[str, Inventory],
    now: float,
) -> Host:
    """Return a known host after a restart: with its use, and with doubt if it has changed."""
    seen = replace(
        known,
        boot_id=hello.boot_id,
        forced_down=False,
        updated_at=now,
        version=known.version + 1,
        provider_id=provider_id_of(known.name),
    )
    used = {name for name, amount in known.used.items() if amount}
    if not used:
        return replace(seen, topology=topology, inventory=inventory, degraded=None)
    if not same_hardware(known.topology, topology):
        reason = f"{CHANGED_HARDWARE} while it holds instances: it reports another topology"
        return replace(seen, degraded=reason)
    if gone := sorted(used - inventory.keys()):
        reason = f"{CHANGED_HARDWARE} while it holds instances: it has no more {', '.join(gone)}"
        return replace(seen, degraded=reason)
    healed = None if (known.degraded or "").startswith(CHANGED_HARDWARE) else known.degraded
    # Less than is in use is taken as it is: what is over-committed takes no new claims by itself.
    return replace(seen, inventory=inventory, degraded=healed)


def _warn_of_too_little(before: Host, after: Host) -> None:
    """Say once, when it changes, of what a host now has less than is in use."""
    beyond = over_committed(root_of(after))
    if beyond != over_committed(root_of(before)):
        log.warning("host over-committed", host=after.name, beyond=dict(beyond))


def _is_stray(uow: UnitOfWork, instance: Instance | None, host: str) -> bool:
    """Say whether a guest has no business on this host: nobody knows it, or it lives elsewhere."""
    if instance is None or instance.state is InstanceState.DELETED:
        return True
    if instance.host == host or _moves_through(uow, instance, host):
        return False
    return instance.operation_id is None or not _may_be_undoing(uow, instance, host)


def _moves_through(uow: UnitOfWork, instance: Instance, host: str) -> bool:
    """Say whether an unfinished move has, or may have, a guest of the instance on the host."""
    moves = uow.migrations.where(instance_id=instance.id, state=tuple(UNFINISHED))
    return any(host in (move.source, move.target) for move in moves)


def _may_be_undoing(uow: UnitOfWork, instance: Instance, host: str) -> bool:
    record = uow.operations.get(instance.operation_id or "")
    return record is not None and record.waiting_on == ON_HOST + host


def _drop(uow: UnitOfWork, host: str, domain: Domain, instance: Instance | None) -> None:
    """Tell a host to remove a stray, under a fence that is newer than all it has seen."""
    fence = max(domain.fence, instance.fence if instance else 0) + 1
    if instance is not None:
        uow.instances.save(replace(instance, fence=fence))
    token = Token(
        operation_id=str(uuid.uuid5(uuid.UUID(domain.instance_id), f"stray-on-{host}-{fence}")),
        step="drop_stray",
        attempt=1,
        sequence=1,
        fence=fence,
    )
    instruction = Instruction(token=token, instance_id=domain.instance_id, verb="destroy")
    uow.post(instruction_letter(host, instruction, token.operation_id))


def _note_difference(uow: UnitOfWork, instance: Instance, domain: Domain | None) -> None:
    """Let an idle instance say what its host says of it; one at work is its operation's.

    What changed a moment ago may be newer than the host's list, so it is left for the next.
    A guest that was missed and is there again is well again.
    """
    if _as_reported(instance, domain, uow.now) == instance:
        return
    newest = uow.instances.lock(instance.id)
    if newest is not None and newest.host == instance.host:
        changed = _as_reported(newest, domain, uow.now)
        uow.instances.save(replace(changed, updated_at=uow.now))


def _as_reported(instance: Instance, domain: Domain | None, now: float) -> Instance:
    if instance.operation_id is not None or now - instance.updated_at < SETTLED_S:
        return instance
    if domain is None:
        return _without_guest(instance)
    known_to_run = instance.state in _MAY_RUN or _was_missed(instance)
    return _as_powered(instance, domain) if known_to_run else instance


def _without_guest(instance: Instance) -> Instance:
    if instance.state not in _MAY_RUN:
        return instance
    fault = {"code": GUEST_MISSING, "message": f"{instance.host} no longer has its guest"}
    lost = replace(instance, state=InstanceState.ERROR, fault=fault)
    return replace(lost, power_state=PowerState.NOSTATE)


def _as_powered(instance: Instance, domain: Domain) -> Instance:
    on = domain.power_state == "running"
    return replace(
        instance,
        state=InstanceState.ACTIVE if on else InstanceState.STOPPED,
        power_state=PowerState.RUNNING if on else PowerState.SHUTDOWN,
        fault=None if _was_missed(instance) else instance.fault,
    )


def _was_missed(instance: Instance) -> bool:
    return (instance.fault or {}).get("code") == GUEST_MISSING


def _note_accounting(uow: UnitOfWork, sick: Sequence[str], name: str) -> None:
    """A host that cannot account for a guest takes no new ones until it can again (N33)."""
    reason = f"{BAD_ACCOUNTING}: {', '.join(sick[:5])}" if sick else None
    seen = uow.hosts.get(name)
    if seen is None or not _is_news(seen, reason):
        return
    host = must_lock(uow, name)
    if _is_news(host, reason):
        uow.hosts.save(replace(host, degraded=reason, version=host.version + 1))


def _is_news(host: Host, reason: str | None) -> bool:
    if host.degraded is not None and not host.degraded.startswith(BAD_ACCOUNTING):
        return False  # degraded for another reason, which outlasts a guest that is well again
    return host.degraded != reason
