"""Whatever is lost or wrong in the books, healing frees nothing that somebody has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.commands.placement import _findings, _heal_all
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import provider_id_of
from conductor.processes.database_access import DatabaseAccess
from conductor.settings import Settings
from conductor.store import Allocation, Inventory, Store, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from models.lifecycle import OperationState
from tests.contracts.placement.world import make
from tests.invariants import violations
from tests.operations.world import PINNED, SHARED, World

TABLES = ("instances", "hosts", "providers", "allocations", "migrations")
VGPU = {"vcpus": 1, "memory_mb": 128, "extra_specs": {"resources1:VGPU": "1"}}

Books = Mapping[str, list[Any]]


def books_of(store: Store) -> Books:
    with store.read() as uow:
        return {table: getattr(uow, table).where() for table in TABLES}


def store_of(books: Books) -> Store:
    store = MemoryStore(lambda: 1_000.0)
    with store.begin() as uow:
        for table, rows in books.items():
            getattr(uow, table).add_many(rows)
    return store


def _truth() -> Books:
    """Pinned, shared and with a card; one move awaits confirmation. Two cards on one host."""
    world = World(hosts=3)
    with world.store.begin() as uow:
        placement = StorePlacement(uow)
        for card, host in (("card-0", "host-0"), ("card-1a", "host-1"), ("card-1b", "host-1")):
            parent = placement.provider(provider_id_of(host))
            make(placement, card, {"VGPU": Inventory(1)}, parent=parent)
    for flavor, host in (
        (PINNED, "host-0"), (SHARED, "host-0"), (VGPU, "host-0"), (VGPU, "host-1"),
        (PINNED, "host-1"), (PINNED, "host-2"),
    ):  # fmt: skip
        built = world.build(flavor, host=host)
        world.run_out()
        assert world.ended(built) is OperationState.SUCCEEDED
    body = {"instance_id": world.instance(built).id, "host": "host-1"}
    moved = world.submit("migrate_instance", body)
    world.run_out()
    assert world.ended(moved) is OperationState.SUCCEEDED
    return books_of(world.store)


TRUTH = _truth()
ROWS = sorted((item.consumer_id, item.provider) for item in TRUTH["allocations"])
NAMES = sorted(item.name for item in (*TRUTH["hosts"], *TRUTH["providers"]))


@dataclass(frozen=True)
class Damage:
    """One row that is lost or wrong."""

    kind: str
    row: tuple[str, str]
    name: str
    amount: int

    def done(self, uow: UnitOfWork) -> None:
        held = uow.allocations.get(*self.row)
        if self.kind == "lost" and held is not None:
            uow.allocations.drop(*self.row)
        elif self.kind == "lost with its use" and held is not None:
            uow.allocations.drop(*self.row)
            self._note(uow, held, -1)
        elif self.kind == "amounts" and held is not None:
            amounts = {name: amount + self.amount for name, amount in held.amounts.items()}
            uow.allocations.save(replace(held, amounts=amounts))
        elif self.kind == "doubled" and held is not None:
            if uow.allocations.get(held.consumer_id, self.name) is None:
                uow.allocations.add(replace(held, provider=self.name))
        elif self.kind == "use":
            self._misnote(uow)

    def _note(self, uow: UnitOfWork, held: Allocation, sign: int) -> None:
        provider = next(iter(uow.providers.where(name=held.provider)), None)
        host = uow.hosts.get(held.provider)
        used = dict((provider or host).used) if provider or host else {}
        for name, amount in held.amounts.items():
            used[name] = max(0, used.get(name, 0) + sign * amount)
        if provider is not None:
            uow.providers.save(replace(provider, used=used, generation=provider.generation + 1))
        elif host is not None:
            uow.hosts.save(
                replace(host, used=used, instances=host.instances - 1, version=host.version + 1)
            )

    def _misnote(self, uow: UnitOfWork) -> None:
        host = uow.hosts.get(self.name)
        if host is not None:
            cells = tuple(replace(cell, pinned_cpus=0) for cell in host.topology.cells)
            topology = replace(host.topology, cells=cells)
            used = {"VCPU": 1 + self.amount}
            uow.hosts.save(replace(host, topology=topology, used=used, version=host.version + 1))
            return
        (provider,) = uow.providers.where(name=self.name)
        uow.providers.save(replace(provider, used={}, generation=provider.generation + 1))


DAMAGES = st.builds(
    Damage,
    st.sampled_from(("lost", "lost with its use", "amounts", "doubled", "use")),
    st.sampled_from(ROWS),
    st.sampled_from(NAMES),
    st.sampled_from((-1, 1, 3)),
)


def heal(store: Store, *, force: bool = False) -> set[tuple[str, str, str | None]]:
    """Heal as the command does; return what is left."""
    here = DatabaseAccess(Settings(), store)
    _heal_all(here, _findings(here), force=force)
    return {(finding.code, finding.provider, finding.consumer_id) for finding in _findings(here)}


def used_of(books: Books) -> dict[tuple[str, str], int]:
    providers = (*books["hosts"], *books["providers"])
    return {
        (provider.name, name): amount
        for provider in providers
        for name, amount in provider.used.items()
    }


def held_of(books: Books) -> dict[tuple[str, str, str], int]:
    return {
        (book.consumer_id, book.provider, name): amount
        for book in books["allocations"]
        for name, amount in book.amounts.items()
    }


def pins_of(books: Books) -> dict[tuple[str, int], int]:
    return {
        (host.name, cell.id): cell.pinned_cpus
        for host in books["hosts"]
        for cell in host.topology.cells
    }


def plain(books: Books) -> Any:
    """Return the books without versions, times, and zeros."""
    return (
        {key: amount for key, amount in used_of(books).items() if amount},
        {key: amount for key, amount in held_of(books).items() if amount},
        pins_of(books),
        {host.name: (host.instances, host.topology) for host in books["hosts"]},
    )


@given(st.lists(DAMAGES, min_size=1, max_size=4), st.booleans())
def test_healing_frees_nothing_that_somebody_has_and_leaves_what_it_cannot_tell(
    damages: list[Damage], force: bool
) -> None:
    store = store_of(TRUTH)
    with store.begin() as uow:
        for damage in damages:
            damage.done(uow)
    damaged = books_of(store)
    left = heal(store, force=force)
    healed = books_of(store)

    for measure in (used_of, held_of):
        true, before, after = measure(TRUTH), measure(damaged), measure(healed)
        for key, amount in true.items():
            assert after.get(key, 0) >= min(amount, before.get(key, 0)), key
    true_pins, before_pins, after_pins = map(pins_of, (TRUTH, damaged, healed))
    for key, mask in true_pins.items():
        assert mask & before_pins[key] & ~after_pins[key] == 0, key
    # Whatever is not true again, is on the list for a person.
    if not left:
        assert plain(healed) == plain(TRUTH)
        with store.read() as uow:
            assert list(violations(uow)) == []
    assert heal(store, force=force) == left
    assert plain(books_of(store)) == plain(healed)


def test_what_was_held_of_one_of_two_cards_is_for_a_person() -> None:
    store = store_of(TRUTH)
    with store.begin() as uow:
        (row,) = [
            allocation
            for allocation in uow.allocations.where()
            if allocation.provider.startswith("card-1")
        ]
        Damage("lost with its use", (row.consumer_id, row.provider), row.provider, 1).done(uow)
    before = plain(books_of(store))
    assert heal(store) == {("undecided", "host-1", row.consumer_id)}
    assert plain(books_of(store)) == before


def test_what_was_held_of_the_only_card_is_held_of_it_again() -> None:
    store = store_of(TRUTH)
    with store.begin() as uow:
        (row,) = uow.allocations.where(provider="card-0")
        Damage("lost with its use", (row.consumer_id, row.provider), row.provider, 1).done(uow)
    assert heal(store) == set()
    assert plain(books_of(store)) == plain(TRUTH)


def test_a_move_that_awaits_confirmation_is_not_healed_unless_forced() -> None:
    store = store_of(TRUTH)
    (move,) = [item for item in TRUTH["migrations"] if item.unfinished]
    with store.begin() as uow:
        Damage("lost with its use", (move.id, move.source), move.source, 1).done(uow)
    before = plain(books_of(store))
    assert ("missing", move.source, move.id) in heal(store)
    assert plain(books_of(store)) == before
    assert heal(store, force=True) == set()
    assert plain(books_of(store)) == plain(TRUTH)
