"""Finds differences between instances, moves, allocations and the recorded use of providers.

Pure over what one transaction reads: equal records give equal findings. Instances and
unfinished moves say who should hold what; allocations say who does; hosts and other providers
note the sum. Consumers of other kinds than these two are somebody else's, and only summed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from conductor.placement.consistency.expected_allocations import (
    Providers,
    Share,
    is_sharing_name,
    shares_of,
    used_by,
)
from conductor.placement.consistency.guest_differences import GUESTS_DIFFER
from conductor.placement.providers import INSTANCE, MIGRATION, Resources
from conductor.store import Allocation, Host, Instance, Inventory, Migration, Provider, UnitOfWork
from models.errors import Rejected
from models.lifecycle import UNFINISHED, InstanceState

Code = Literal[
    "orphan",
    "elsewhere",
    "missing",
    "amounts",
    "undecided",
    "use",
    "overlap",
    "over_committed",
    "reported",
]

OURS: Final = (INSTANCE, MIGRATION)
HEALABLE: Final = frozenset({"orphan", "elsewhere", "missing", "amounts", "use"})
"""What healing can put right: of the others, somebody has to move or change something."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not add up: a stable code, who and where, and a sentence.

    `orphan`: the consumer is gone. `elsewhere`: it lives, and not there. `missing`: it is there
    and holds nothing. `amounts`: it holds something else than it should. `undecided`: something of
    what it should hold is lost, and more than one provider may be meant. `use`: the provider
    notes another use than its consumers have. `overlap`: pins that exclude each other.
    `over_committed`: more is in use than can be claimed; new claims are refused there.
    `reported`: the host says that it has guests otherwise than the database.
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
class Books:
    """What one transaction saw: hosts and providers, who lives, who moves, who holds what."""

    hosts: Sequence[Host]
    providers: Sequence[Provider]
    instances: Sequence[Instance]
    moves: Sequence[Migration]
    allocations: Sequence[Allocation]


def read_books(uow: UnitOfWork) -> Books:
    """Return everything that has to add up; grows with instances and hosts."""
    live = [state for state in InstanceState if state is not InstanceState.DELETED]
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
    for allocation in books.allocations:
        held[allocation.provider].append(allocation)
    for share in shares:
        here[share.host].append(share)
    found = [
        *_of_consumers(books, shares),
        *(
            line
            for host in books.hosts
            for line in _of_host(host, held[host.name], here[host.name])
        ),
        *(
            line
            for provider in books.providers
            for line in _of_provider(provider, held[provider.name])
        ),
    ]
    return sorted(found, key=lambda item: (item.provider, item.consumer_id or "", item.code))


def summed(held: Iterable[Allocation]) -> Resources:
    """Return what these allocations take together."""
    total: Counter[str] = Counter()
    for allocation in held:
        total.update(allocation.amounts)
    return {name: amount for name, amount in total.items() if amount}


def _shares(books: Books) -> list[Share]:
    moves, held = defaultdict(list), defaultdict(list)
    providers = Providers(books.hosts, books.providers)
    owner = {move.id: move.instance_id for move in books.moves}
    for move in books.moves:
        moves[move.instance_id].append(move)
    for allocation in books.allocations:
        held[owner.get(allocation.consumer_id, allocation.consumer_id)].append(allocation)
    return [
        share
        for instance in books.instances
        for share in shares_of(instance, moves[instance.id], held[instance.id], providers)
    ]


def _of_consumers(books: Books, shares: Sequence[Share]) -> Iterator[Finding]:
    living = {instance.id for instance in books.instances} | {move.id for move in books.moves}
    there = {(item.consumer_id, item.host) for item in shares}
    providers = Providers(books.hosts, books.providers)
    for held in books.allocations:
        who, where = held.consumer_id, held.provider
        if held.consumer_kind not in OURS:
            continue
        home = providers.host_of(where)
        if who not in living:
            yield Finding("orphan", where, who, f"{who} holds {_listed(held.amounts)} and is gone")
        elif (
            home is not None and (who, home) not in there and not is_sharing_name(providers, where)
        ):
            text = f"{who} holds {_listed(held.amounts)} and is not there"
            yield Finding("elsewhere", where, who, text)
    rows = {
        (allocation.consumer_id, allocation.provider): allocation.amounts
        for allocation in books.allocations
    }
    for share in shares:
        yield from _of_share(share, rows)


def _of_share(share: Share, rows: Mapping[tuple[str, str], Resources]) -> Iterator[Finding]:
    who = share.consumer_id
    for name in share.providers:
        held = rows.get((who, name))
        wanted = share.of(name, held or {})
        if held is None and wanted:
            text = f"{who} is there and does not hold {_listed(wanted)}"
            yield Finding("missing", name, who, text)
        elif held is not None and dict(held) != dict(wanted):
            yield Finding(
                "amounts", name, who, f"{who} holds {_listed(held)}, not {_listed(wanted)}"
            )
    if share.undecided:
        places = ", ".join(sorted(share.doubtful)) or "nothing that has any"
        text = f"{who} should hold {_listed(share.undecided)}, and nothing tells of which: {places}"
        yield Finding("undecided", share.host, who, text)


def _of_host(host: Host, held: Sequence[Allocation], here: Iterable[Share]) -> Iterator[Finding]:
    yield from _of_sum(host.name, host.inventory, host.used, held)
    if (host.degraded or "").startswith(GUESTS_DIFFER):
        yield Finding("reported", host.name, None, str(host.degraded))
    ours = sum(allocation.consumer_kind in OURS for allocation in held)
    if host.instances != ours:
        text = f"{host.instances} instances are counted, {ours} hold something"
        yield Finding("use", host.name, None, text)
    try:
        topology = used_by(host.topology, here)
    except Rejected as error:
        yield Finding("overlap", host.name, None, f"instances exclude each other: {error}")
    else:
        if topology != host.topology:
            text = "CPUs, memory, pages or devices are noted otherwise than instances have them"
            yield Finding("use", host.name, None, text)


def _of_provider(provider: Provider, held: Sequence[Allocation]) -> Iterator[Finding]:
    yield from _of_sum(provider.name, provider.inventories, provider.used, held)


def _of_sum(
    name: str, inventories: Mapping[str, Inventory], used: Resources, held: Sequence[Allocation]
) -> Iterator[Finding]:
    total = summed(held)
    if total != {item: amount for item, amount in used.items() if amount}:
        text = f"noted as in use is {_listed(used)}, held is {_listed(total)}"
        yield Finding("use", name, None, text)
    for item, amount in total.items():
        has = inventories[item].capacity if item in inventories else 0
        if amount > has:
            text = f"{amount} {item} are in use, {has} can be claimed: takes no new claims"
            yield Finding("over_committed", name, None, text)


def _listed(resources: Resources) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(resources.items())) or "nothing"
