"""Repairs what an audit found: one consumer, or one provider, in the caller's transaction.

Everything is read again under locks, in the order in which all lock (instance, then hosts), and
only what is still wrong is changed: healing is idempotent, and releases nothing that was claimed
meanwhile. What a move or an operation is changing, and what the records do not decide, is
refused: released by mistake it would be allocated twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from conductor.placement.consistency.allocation_audit import OURS, summed
from conductor.placement.consistency.expected_allocations import (
    Providers,
    Share,
    has_begun,
    shares_of,
    used_by,
)
from conductor.store import Allocation, Host, Instance, Migration, UnitOfWork
from models.errors import Rejected
from models.lifecycle import UNFINISHED, InstanceState

_Rows = Mapping[tuple[str, str], Allocation]


def heal_consumer(uow: UnitOfWork, consumer_id: str, *, force: bool = False) -> list[str]:
    """Let an instance and its moves hold what they should; return the providers concerned.

    Raises `Rejected` (`move_in_flight`, `operation_in_flight`) for an instance with an unfinished
    move or a running operation, unless forced: these are about to change what is held. Raises it
    (`undecided`) where nothing tells of which provider something is held.
    """
    migration = uow.migrations.get(consumer_id)
    owner = migration.instance_id if migration is not None else consumer_id
    instance = uow.instances.lock(owner)
    moves = uow.migrations.where(instance_id=owner, state=list(UNFINISHED))
    if not force:
        _refuse_in_flight(uow, owner, instance, moves)
    consumers = sorted({owner, consumer_id, *(move.id for move in moves)})
    held = [
        allocation
        for allocation in uow.allocations.where(consumer_id=consumers)
        if _is_ours(allocation)
    ]
    providers = _providers(uow)
    shares = list(shares_of(instance, moves, held, providers))
    for share in shares:
        _refuse_undecided(share)
    changed = _rewrite(uow, instance, shares, {(e.consumer_id, e.provider): e for e in held})
    for name in sorted(changed):
        heal_provider(uow, name, force=force)
    return sorted(changed)


def heal_provider(uow: UnitOfWork, name: str, *, force: bool = False) -> bool:
    """Note as in use what the consumers of a provider hold; say whether it was otherwise.

    Raises `Rejected` where instances on a host exclude each other (somebody has to move one),
    where a consumer does not hold what it should (`holds_otherwise`: it comes first) and, unless
    forced, where a move has begun there (`move_in_flight`).
    """
    host = uow.hosts.lock(name)
    found = uow.providers.where(name=name) if host is None else []
    provider = uow.providers.lock(found[0].id) if found else None
    shares, moves, rows = _on(uow, name)
    for move in moves:
        if has_begun(move) and name in (move.source, move.target) and not force:
            raise _moving(move)
    for share in shares:
        _refuse_otherwise(share, name, rows.get((share.consumer_id, name)))
    held = uow.allocations.where(provider=name)
    if host is not None:
        return _heal_host(uow, host, held, shares)
    if provider is None or dict(provider.used) == dict(summed(held)):
        return False
    uow.providers.save(replace(provider, used=summed(held), generation=provider.generation + 1))
    return True


def _heal_host(
    uow: UnitOfWork, host: Host, held: Sequence[Allocation], shares: Iterable[Share]
) -> bool:
    after = replace(
        host,
        topology=used_by(host.topology, [share for share in shares if share.host == host.name]),
        used=summed(held),
        instances=sum(map(_is_ours, held)),
    )
    if after == replace(host, used=_without_zeros(host)):
        return False
    uow.hosts.save(replace(after, version=host.version + 1, updated_at=uow.now))
    return True


def _rewrite(
    uow: UnitOfWork, instance: Instance | None, shares: Sequence[Share], found: _Rows
) -> set[str]:
    """Replace the allocations of an instance by what it should hold; return what changed."""
    providers = _providers(uow)
    wanted = {(item.consumer_id, name): item for item in shares for name in item.providers}
    there = {(item.consumer_id, item.host) for item in shares}
    living = _living(instance, shares)
    changed = set()
    for key, allocation in found.items():
        share, home = wanted.get(key), providers.host_of(key[1])
        if share is not None:
            amounts = share.of(key[1], allocation.amounts)
            if dict(amounts) == dict(allocation.amounts):
                continue
            uow.allocations.save(replace(allocation, amounts=amounts))
        elif key[0] not in living or (home is not None and (key[0], home) not in there):
            uow.allocations.drop(*key)
        else:
            # What a living consumer holds of what serves its host, its request says.
            continue
        changed.add(key[1])
    for key in wanted.keys() - found.keys():
        amounts = wanted[key].of(key[1], {})
        if amounts:
            uow.allocations.add(_allocation(wanted[key], key[1], amounts, instance))
            changed.add(key[1])
    return changed


def _allocation(
    share: Share, provider: str, amounts: Mapping[str, int], instance: Instance | None
) -> Allocation:
    project, user = (instance.project_id, instance.user_id) if instance else ("", "")
    return Allocation(share.consumer_id, provider, amounts, share.kind, project, user)


def _on(uow: UnitOfWork, name: str) -> tuple[list[Share], list[Migration], _Rows]:
    """Return what should be held by all who may hold something of a provider, and their moves.

    Who is there, the records of instances and moves say: an allocation may be the one lost.
    """
    providers = _providers(uow)
    hosts = providers.hosts_served(name)
    coming = uow.migrations.where(target=hosts, state=list(UNFINISHED))
    owners = {item.id for item in uow.instances.where(host=hosts)}
    owners |= {move.instance_id for move in coming}
    owners |= {
        move.instance_id for move in uow.migrations.where(source=hosts, state=list(UNFINISHED))
    }
    moves = defaultdict(list)
    for move in uow.migrations.where(instance_id=sorted(owners), state=list(UNFINISHED)):
        moves[move.instance_id].append(move)
    owner = {move.id: item for item, its in moves.items() for move in its}
    consumers = sorted(owners | owner.keys())
    held = defaultdict(list)
    for allocation in uow.allocations.where(consumer_id=consumers):
        held[owner.get(allocation.consumer_id, allocation.consumer_id)].append(allocation)
    shares = [
        share
        for instance in uow.instances.where(id=sorted(owners))
        for share in shares_of(instance, moves[instance.id], held[instance.id], providers)
        if share.host in hosts
    ]
    rows = {
        (allocation.consumer_id, allocation.provider): allocation
        for its in held.values()
        for allocation in its
    }
    return shares, [move for its in moves.values() for move in its], rows


def _refuse_in_flight(
    uow: UnitOfWork, owner: str, instance: Instance | None, moves: Sequence[Migration]
) -> None:
    for move in moves:
        raise _moving(move)
    running = uow.operations.get(instance.operation_id or "") if instance is not None else None
    if running is not None and not running.state.ended:
        message = f"operation {running.id} runs on {owner}: heal it afterwards, or --force"
        raise Rejected("operation_in_flight", message, instance=owner, operation=running.id)


def _moving(move: Migration) -> Rejected:
    message = f"{move.instance_id} is moving (migration {move.id}): heal it afterwards, or --force"
    data = {"instance": move.instance_id, "migration": move.id}
    return Rejected("move_in_flight", message, **data)


def _refuse_undecided(share: Share) -> None:
    if not share.undecided:
        return
    what = ", ".join(f"{amount} {name}" for name, amount in sorted(share.undecided.items()))
    where = ", ".join(sorted(share.doubtful)) or "nothing that has any"
    message = f"{share.consumer_id} should hold {what}, and nothing tells of which: {where}"
    raise Rejected("undecided", message, instance=share.consumer_id, host=share.host)


def _refuse_otherwise(share: Share, name: str, row: Allocation | None) -> None:
    if name in share.doubtful:
        _refuse_undecided(share)
    held = row.amounts if row is not None else {}
    if name in share.providers and dict(share.of(name, held)) != dict(held):
        message = f"{share.consumer_id} does not hold what it should of {name}: heal it first"
        raise Rejected("holds_otherwise", message, instance=share.consumer_id, provider=name)


def _providers(uow: UnitOfWork) -> Providers:
    return Providers(uow.hosts.where(), uow.providers.where())


def _living(instance: Instance | None, shares: Iterable[Share]) -> set[str]:
    if instance is None or instance.state is InstanceState.DELETED:
        return set()
    return {instance.id, *(share.consumer_id for share in shares)}


def _is_ours(held: Allocation) -> bool:
    return held.consumer_kind in OURS


def _without_zeros(host: Host) -> dict[str, int]:
    return {name: amount for name, amount in host.used.items() if amount}
