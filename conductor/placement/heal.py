"""Putting right what an audit found: one consumer, or one provider, in the caller's transaction.

Everything is read again under locks, in the order in which all lock (instance, then hosts), and
only what is still wrong is changed. So healing twice changes nothing, and healing late frees
nothing that somebody claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conductor.placement.audit import OURS, Share, shares_of, summed, used_by
from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Host, Instance, Migration, Provider
from models.errors import Rejected
from models.lifecycle import UNFINISHED, InstanceState


def heal_consumer(uow: UnitOfWork, consumer_id: str, *, force: bool = False) -> list[str]:
    """Let an instance and its moves hold what they should; return the providers concerned.

    Raises `Rejected` (`move_in_flight`) for an instance with an unfinished move, unless forced:
    the move itself is about to change what both sides hold.
    """
    migration = uow.migrations.get(consumer_id)
    owner = migration.instance_id if migration is not None else consumer_id
    instance = uow.instances.lock(owner)
    moves = uow.migrations.where(instance_id=owner, state=list(UNFINISHED))
    if moves and not force:
        message = f"{owner} is moving (migration {moves[0].id}): heal it afterwards, or --force"
        raise Rejected("move_in_flight", message, instance=owner, migration=moves[0].id)
    consumers = sorted({owner, consumer_id, *(move.id for move in moves)})
    held = [each for each in uow.allocations.where(consumer_id=consumers) if _is_ours(each)]
    changed = _rewrite(uow, instance, moves, held)
    for name in sorted(changed):
        heal_provider(uow, name)
    return sorted(changed)


def heal_provider(uow: UnitOfWork, name: str) -> bool:
    """Note as in use what the consumers of a provider hold; say whether it was otherwise.

    Raises `Rejected` where instances on a host exclude each other: somebody has to move one.
    """
    host = uow.hosts.lock(name)
    held = uow.allocations.where(provider=name)
    if host is None:
        return _heal_other(uow, name, held)
    after = replace(
        host,
        topology=used_by(host.topology, _shares_on(uow, host, held)),
        used=summed(held),
        instances=sum(map(_is_ours, held)),
    )
    if after == replace(host, used=_without_zeros(host)):
        return False
    uow.hosts.save(replace(after, version=host.version + 1, updated_at=uow.now))
    return True


def _rewrite(
    uow: UnitOfWork,
    instance: Instance | None,
    moves: Iterable[Migration],
    held: Iterable[Allocation],
) -> set[str]:
    """Replace the allocations of an instance by what it should hold; return what changed."""
    found = {(each.consumer_id, each.provider): each for each in held}
    wanted = {
        (each.consumer_id, each.host): each
        for each in shares_of(instance, moves, found.values(), _beside(uow, found.values()))
        if uow.hosts.get(each.host) is not None
    }
    # What a living consumer holds of others than hosts, its request says, and is left alone.
    living = _living(instance, moves)
    changed = set()
    for key, allocation in found.items():
        share = wanted.get(key)
        if share is not None and dict(share.amounts) != dict(allocation.amounts):
            uow.allocations.save(replace(allocation, amounts=share.amounts))
        elif share is None and (key[0] not in living or _is_host(uow, key[1])):
            uow.allocations.drop(*key)
        else:
            continue
        changed.add(key[1])
    for key in wanted.keys() - found.keys():
        uow.allocations.add(_allocation(wanted[key], instance))
        changed.add(key[1])
    return changed


def _allocation(share: Share, instance: Instance | None) -> Allocation:
    project, user = (instance.project_id, instance.user_id) if instance else ("", "")
    return Allocation(share.consumer_id, share.host, share.amounts, share.kind, project, user)


def _shares_on(uow: UnitOfWork, host: Host, held: Iterable[Allocation]) -> list[Share]:
    """Return what has a place on the NUMA cells of a host, by who holds something of it."""
    consumers = [each.consumer_id for each in held if _is_ours(each)]
    moved = {each.id: each.instance_id for each in uow.migrations.where(id=consumers)}
    owners = sorted({moved.get(each, each) for each in consumers})
    moves = uow.migrations.where(instance_id=owners, state=list(UNFINISHED))
    shares = []
    for instance in uow.instances.where(id=owners):
        its_moves = [move for move in moves if move.instance_id == instance.id]
        named = [instance.id, *(move.id for move in its_moves)]
        its = uow.allocations.where(consumer_id=named)
        wanted = shares_of(instance, its_moves, its, _beside(uow, its))
        shares += [each for each in wanted if each.host == host.name]
    return shares


def _beside(uow: UnitOfWork, held: Iterable[Allocation]) -> dict[str, Provider]:
    names = sorted({each.provider for each in held})
    return {each.name: each for each in uow.providers.where(name=names)} if names else {}


def _heal_other(uow: UnitOfWork, name: str, held: Iterable[Allocation]) -> bool:
    found = uow.providers.where(name=name)
    provider = uow.providers.lock(found[0].id) if found else None
    if provider is None or dict(provider.used) == dict(summed(held)):
        return False
    uow.providers.save(replace(provider, used=summed(held), generation=provider.generation + 1))
    return True


def _living(instance: Instance | None, moves: Iterable[Migration]) -> set[str]:
    if instance is None or instance.state is InstanceState.DELETED:
        return set()
    return {instance.id, *(move.id for move in moves)}


def _is_host(uow: UnitOfWork, name: str) -> bool:
    return uow.hosts.get(name) is not None


def _is_ours(held: Allocation) -> bool:
    return held.consumer_kind in OURS


def _without_zeros(host: Host) -> dict[str, int]:
    return {name: amount for name, amount in host.used.items() if amount}
