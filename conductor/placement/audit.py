"""What does not add up between instances, moves, allocations and the use that is noted.

Pure over what one transaction reads: the same books give the same findings. Instances and
unfinished moves say who should hold what; allocations say who does; hosts and other providers
note the sum. Consumers of other kinds than these two are somebody else's, and only summed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from conductor.placement.beside import asked_in_all
from conductor.placement.candidates import is_sharing
from conductor.placement.providers import INSTANCE, MIGRATION, Resources
from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Host, Instance, Inventory, Migration, Provider
from models.errors import Rejected
from models.hardware import accounting
from models.hardware.flavor import Flavor
from models.hardware.guest import Placement
from models.hardware.image import Image
from models.hardware.topology import HostTopology
from models.lifecycle import UNFINISHED, InstanceState

Code = Literal["orphan", "elsewhere", "missing", "amounts", "use", "overlap", "over_committed"]

OURS: Final = (INSTANCE, MIGRATION)
HEALABLE: Final = frozenset({"orphan", "elsewhere", "missing", "amounts", "use"})
"""What healing can put right: of the others, somebody has to move or change something."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not add up: a stable code, who and where, and a sentence.

    `orphan`: the consumer is gone. `elsewhere`: it lives, and not there. `missing`: it is there
    and holds nothing. `amounts`: it holds something else than it should. `use`: the provider
    notes another use than its consumers have. `overlap`: pins that exclude each other.
    `over_committed`: more is in use than can be claimed; new claims are refused there.
    """

    code: Code
    provider: str
    consumer_id: str | None
    message: str

    @property
    def healable(self) -> bool:
        """Whether healing puts it right."""
        return self.code in HEALABLE


@dataclass(frozen=True, slots=True)
class Share:
    """What a consumer should hold of one host."""

    consumer_id: str
    kind: str
    host: str
    amounts: Resources
    placement: Placement | None


@dataclass(frozen=True, slots=True)
class Books:
    """What one transaction saw: hosts and providers, who lives, who moves, who holds what."""

    hosts: Sequence[Host]
    providers: Sequence[Provider]
    instances: Sequence[Instance]
    moves: Sequence[Migration]
    allocations: Sequence[Allocation]


def read_books(uow: UnitOfWork) -> Books:
    """Return everything that has to add up; grows with instances and hosts."""
    live = [each for each in InstanceState if each is not InstanceState.DELETED]
    return Books(
        uow.hosts.where(),
        uow.providers.where(),
        uow.instances.where(state=live),
        uow.migrations.where(state=list(UNFINISHED)),
        uow.allocations.where(),
    )


def audit(books: Books) -> list[Finding]:
    """Return what does not add up, by provider and consumer; nothing when all does."""
    shares = _shares(books)
    held, here = defaultdict(list), defaultdict(list)
    for each in books.allocations:
        held[each.provider].append(each)
    for share in shares:
        here[share.host].append(share)
    found = [
        *_of_consumers(books, shares),
        *(
            line
            for host in books.hosts
            for line in _of_host(host, held[host.name], here[host.name])
        ),
        *(line for each in books.providers for line in _of_provider(each, held[each.name])),
    ]
    return sorted(found, key=lambda each: (each.provider, each.consumer_id or "", each.code))


def shares_of(
    instance: Instance | None,
    moves: Iterable[Migration],
    held: Iterable[Allocation],
    beside: Mapping[str, Provider],
) -> Iterator[Share]:
    """Yield what an instance and its unfinished moves should hold of hosts.

    Of a move that has begun the migration holds the source, and the instance the target; one
    that was only asked for holds nothing yet. What is held of providers `beside` hosts (by name)
    need not be held of a host; of those that share, an instance that moves holds both sides'.
    A flavor that contradicts itself holds what it holds: there is nothing to compare it with.
    """
    if instance is None or instance.state is InstanceState.DELETED:
        return
    rows = tuple(held)
    allocated = {(each.consumer_id, each.provider): each.amounts for each in rows}
    shared = [
        each for each in rows if each.provider in beside and is_sharing(beside[each.provider])
    ]

    def share(
        consumer: str, kind: str, host: str, flavor: Flavor, placement: Placement | None
    ) -> Share:
        own = [each for each in rows if each.consumer_id == consumer and each.provider in beside]
        near = {each.provider: each for each in (*shared, *own)}
        wanted = _beyond(near.values(), flavor, instance.image)
        if wanted is None:
            wanted = allocated.get((consumer, host), {})
        return Share(consumer, kind, host, wanted, placement)

    begun = [move for move in moves if (move.id, move.source) in allocated]
    if instance.host and not any(not move.switched for move in begun):
        where, placed = instance.host, instance.placement
        yield share(instance.id, INSTANCE, where, instance.flavor, placed)
    for move in begun:
        yield share(move.id, MIGRATION, move.source, move.source_flavor, move.source_placement)
        if move.target is not None and not move.switched:
            placed = move.target_placement
            yield share(instance.id, INSTANCE, move.target, move.target_flavor, placed)


def used_by(topology: HostTopology, shares: Iterable[Share]) -> HostTopology:
    """Return the hardware with exactly these placements in use.

    Raises `Rejected` (see `accounting.claim`) where two of them exclude each other.
    """
    bare = accounting.without_use(topology)
    after = HostTopology(bare.cells, topology.pci_pools)
    for share in shares:
        if share.placement is not None:
            after = accounting.claim(after, share.placement)
    return after


def summed(held: Iterable[Allocation]) -> Resources:
    """Return what these allocations take together."""
    total: Counter[str] = Counter()
    for each in held:
        total.update(each.amounts)
    return {name: amount for name, amount in total.items() if amount}


def _shares(books: Books) -> list[Share]:
    moves, held = defaultdict(list), defaultdict(list)
    beside = {each.name: each for each in books.providers}
    owner = {move.id: move.instance_id for move in books.moves}
    for move in books.moves:
        moves[move.instance_id].append(move)
    for each in books.allocations:
        held[owner.get(each.consumer_id, each.consumer_id)].append(each)
    return [
        share
        for instance in books.instances
        for share in shares_of(instance, moves[instance.id], held[instance.id], beside)
    ]


def _of_consumers(books: Books, shares: Iterable[Share]) -> Iterator[Finding]:
    living = {each.id for each in books.instances} | {each.id for each in books.moves}
    wanted = {(each.consumer_id, each.host): each for each in shares}
    on_hosts = {host.name for host in books.hosts}
    seen = set()
    for held in books.allocations:
        who, where = held.consumer_id, held.provider
        seen.add((who, where))
        share = wanted.get((who, where))
        if held.consumer_kind not in OURS:
            continue
        if who not in living:
            yield Finding("orphan", where, who, f"{who} holds {_said(held.amounts)} and is gone")
        elif share is None and where in on_hosts:
            text = f"{who} holds {_said(held.amounts)} and is not there"
            yield Finding("elsewhere", where, who, text)
        elif share is not None and dict(held.amounts) != dict(share.amounts):
            text = f"{who} holds {_said(held.amounts)}, not {_said(share.amounts)}"
            yield Finding("amounts", where, who, text)
    for (who, where), share in wanted.items():
        if (who, where) not in seen:
            text = f"{who} is there and does not hold {_said(share.amounts)}"
            yield Finding("missing", where, who, text)


def _of_host(host: Host, held: Sequence[Allocation], here: Iterable[Share]) -> Iterator[Finding]:
    yield from _of_sum(host.name, host.inventory, host.used, held)
    ours = sum(each.consumer_kind in OURS for each in held)
    if host.instances != ours:
        text = f"{host.instances} instances are counted, {ours} hold something"
        yield Finding("use", host.name, None, text)
    try:
        topology = used_by(host.topology, here)
    except Rejected as error:
        yield Finding("overlap", host.name, None, f"instances exclude each other: {error}")
    else:
        if topology != host.topology:
            text = (
                "CPUs, memory or pages of NUMA cells are noted otherwise than instances have them"
            )
            yield Finding("use", host.name, None, text)


def _of_provider(provider: Provider, held: Sequence[Allocation]) -> Iterator[Finding]:
    yield from _of_sum(provider.name, provider.inventories, provider.used, held)


def _of_sum(
    name: str, inventories: Mapping[str, Inventory], used: Resources, held: Sequence[Allocation]
) -> Iterator[Finding]:
    total = summed(held)
    if total != {each: amount for each, amount in used.items() if amount}:
        text = f"noted as in use is {_said(used)}, held is {_said(total)}"
        yield Finding("use", name, None, text)
    for each, amount in total.items():
        has = inventories[each].capacity if each in inventories else 0
        if amount > has:
            text = f"{amount} {each} are in use, {has} can be claimed: takes no new claims"
            yield Finding("over_committed", name, None, text)


def _beyond(held: Iterable[Allocation], flavor: Flavor, image: Image | None) -> Resources | None:
    """Return what is asked beyond what is held; None where flavor and image contradict."""
    try:
        left = Counter(dict(asked_in_all(flavor, image)))
    except Rejected:
        return None
    for each in held:
        left.subtract(each.amounts)
    return {name: amount for name, amount in left.items() if amount > 0}


def _said(resources: Resources) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(resources.items())) or "nothing"
