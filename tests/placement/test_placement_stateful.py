"""Random work on our own placement beside a model of plain dictionaries: the same, always."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import ProviderQuery
from conductor.placement.providers import Consumer, Reshaping, provider_id_of
from conductor.store import Inventory, Provider, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from models.errors import ConductorError
from tests.placement.one_host import a_root

CLASSES = ("VGPU", "PCPU")
ROOT = provider_id_of("h1")
FLEETING = "p3"
IDS = (ROOT, "p1", "p2", FLEETING)

Held = dict[str, dict[str, int]]

inventories = st.dictionaries(
    st.sampled_from(CLASSES),
    st.builds(
        Inventory,
        st.integers(4, 12),
        reserved=st.integers(0, 1),
        ratio=st.sampled_from([1.0, 1.5]),
        min_unit=st.sampled_from([1, 1, 2]),
        max_unit=st.sampled_from([None, None, 4]),
        step_size=st.sampled_from([1, 1, 2]),
    ),
    min_size=1,
)
amounts = st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 4), min_size=1)
holdings = st.dictionaries(st.sampled_from(IDS), amounts, max_size=2)
claims = st.dictionaries(st.sampled_from("abc"), holdings, min_size=1, max_size=3)


class Placing(RuleBasedStateMachine):
    """Every step is a transaction; what it refuses must leave nothing behind."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.held: dict[str, Held] = {}
        self.has: dict[str, Mapping[str, Inventory]] = {}
        self.parents: dict[str, str | None] = {}

    @initialize(has=st.tuples(inventories, inventories, inventories))
    def begin(self, has: tuple[Mapping[str, Inventory], ...]) -> None:
        with self.store.begin() as uow:
            uow.hosts.add(a_root("h1", inventory={}))
        self.has[ROOT], self.parents[ROOT] = {}, None
        self.ensure("p1", ROOT)
        self.ensure("p2", "p1")
        for provider_id, row in zip((ROOT, "p1", "p2"), has, strict=True):
            self.set_inventories(provider_id, row)

    @rule(provider_id=st.just(FLEETING), parent=st.none() | st.sampled_from(IDS[:-1]))
    def ensure(self, provider_id: str, parent: str | None) -> None:
        def work(placement: StorePlacement) -> None:
            placement.ensure_provider(provider_id, f"name of {provider_id}", parent)

        fine = provider_id in self.has or parent is None or parent in self.has
        if self.done(work, None if fine else {"provider_unknown"}) and provider_id not in self.has:
            self.has[provider_id], self.parents[provider_id] = {}, parent

    @rule(provider_id=st.just(FLEETING))
    def delete(self, provider_id: str) -> None:
        refusals = set()
        if provider_id in self.parents.values():
            refusals.add("provider_has_children")
        if any(provider_id in held for held in self.held.values()):
            refusals.add("provider_in_use")
        if self.done(lambda placement: placement.delete_provider(provider_id), refusals):
            self.has.pop(provider_id, None)
            self.parents.pop(provider_id, None)

    @rule(provider_id=st.sampled_from(IDS), has=inventories)
    def set_inventories(self, provider_id: str, has: Mapping[str, Inventory]) -> None:
        def work(placement: StorePlacement) -> None:
            known = placement.provider(provider_id)
            placement.set_inventories(provider_id, has, known.generation if known else 0)

        refusals = set()
        if provider_id not in self.has:
            refusals.add("provider_unknown")
        elif set(used_of(self.held, provider_id)) & (set(self.has[provider_id]) - set(has)):
            refusals.add("inventory_in_use")
        if self.done(work, refusals):
            self.has[provider_id] = has

    @rule(claimed=claims)
    def write(self, claimed: Mapping[str, Held]) -> None:
        def work(placement: StorePlacement) -> None:
            placement.write(asked(placement, claimed))

        after = {**self.held, **tidy(claimed)}
        if self.done(work, self.refusals(claimed, after, self.has)):
            self.held = after

    @rule(provider_id=st.sampled_from(IDS), has=inventories, claimed=claims)
    def reshape(
        self, provider_id: str, has: Mapping[str, Inventory], claimed: Mapping[str, Held]
    ) -> None:
        def work(placement: StorePlacement) -> None:
            known = placement.provider(provider_id)
            shape = Reshaping(provider_id, has, known.generation if known else 0)
            placement.reshape([shape], asked(placement, claimed))

        after, shaped = {**self.held, **tidy(claimed)}, {**self.has, provider_id: has}
        refusals = self.refusals(claimed, after, shaped)
        if provider_id not in self.has:
            refusals.add("provider_unknown")
        elif set(used_of(after, provider_id)) & (set(self.has[provider_id]) - set(has)):
            refusals |= {"inventory_in_use"}
        if self.done(work, refusals):
            self.held, self.has = after, shaped

    @rule(claimed=claims)
    def write_under_an_old_generation(self, claimed: Mapping[str, Held]) -> None:
        def work(placement: StorePlacement) -> None:
            known = set(self.has)
            held = {
                name: {k: v for k, v in row.items() if k in known} for name, row in claimed.items()
            }
            placement.write([replace(request, generation=1) for request in asked(placement, held)])

        assert not self.done(work, {"generation_conflict"})

    def refusals(
        self,
        claimed: Mapping[str, Held],
        after: Mapping[str, Held],
        has: Mapping[str, Mapping[str, Inventory]],
    ) -> set[str]:
        """Return how this must be refused, one of these, or nothing where it must be taken."""
        found = set()
        for provider_id in IDS:
            before, then = used_of(self.held, provider_id), used_of(after, provider_id)
            for name in CLASSES:
                inventory = has.get(provider_id, {}).get(name)
                if then[name] > before[name] and then[name] > capacity(inventory):
                    found.add("no_capacity")
                for amount in self.new_amounts(claimed, provider_id, name):
                    found |= unfit(inventory, amount)
            if provider_id not in self.has and any(provider_id in held for held in after.values()):
                found.add("provider_unknown")
        return found

    def new_amounts(self, claimed: Mapping[str, Held], provider_id: str, name: str) -> set[int]:
        """Return what is asked for and is not given back in the same request."""

        def of(held: Mapping[str, Held]) -> set[int]:
            return {
                allocation.get(provider_id, {}).get(name, 0) for allocation in held.values()
            } - {0}

        changing = {
            consumer
            for consumer, held in tidy(claimed).items()
            if held.get(provider_id) != self.held.get(consumer, {}).get(provider_id)
        }
        asked_for = {item: claimed[item] for item in changing}
        given_back = {item: self.held.get(item, {}) for item in changing}
        return of(asked_for) - of(given_back)

    def done(self, work: Callable[[StorePlacement], None], refusals: set[str] | None) -> bool:
        """Do it in a transaction; compare what became of it, and that a refusal changed nothing."""
        with self.store.begin() as uow:
            placement = StorePlacement(uow)
            before, rows = books(uow), placement.providers(ProviderQuery())
            code = code_of(lambda: work(placement))
            assert code in (refusals or {None}), refusals
            if code is not None:
                assert books(uow) == before
                return False
            compare_generations(rows, placement.providers(ProviderQuery()))
        return True

    @invariant()
    def the_same_is_held(self) -> None:
        with self.store.read() as uow:
            placement = StorePlacement(uow)
            for name in "abc":
                held = self.held.get(name, {})
                assert placement.consumer(name).allocations == held
                assert (placement.consumer(name).generation is None) == (not held)
            for provider in placement.providers(ProviderQuery()):
                assert provider.used == used_of(self.held, provider.id)
                assert provider.inventories == self.has[provider.id]
                assert provider.parent_id == self.parents[provider.id]
            root = uow.hosts.get("h1")
            assert root is not None
            assert root.instances == sum(ROOT in held for held in self.held.values())
            assert placement.usages("p") == sum(
                (used_of(self.held, identifier) for identifier in IDS), Counter()
            )


def code_of(work: Callable[[], None]) -> str | None:
    try:
        work()
    except ConductorError as error:
        return error.code
    return None


def asked(placement: StorePlacement, claimed: Mapping[str, Held]) -> list[Consumer]:
    return [
        replace(placement.consumer(name), allocations=held, project_id="p")
        for name, held in claimed.items()
    ]


def tidy(claimed: Mapping[str, Held]) -> dict[str, Held]:
    """Leave out amounts of 0 and what is empty then."""
    return {
        name: {
            provider_id: kept
            for provider_id, resources in held.items()
            if (kept := {key: amount for key, amount in resources.items() if amount})
        }
        for name, held in claimed.items()
    }


def used_of(held: Mapping[str, Held], provider_id: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for allocation in held.values():
        total.update(allocation.get(provider_id, {}))
    return total


def capacity(inventory: Inventory | None) -> int:
    if inventory is None:
        return 0
    return int((inventory.total - inventory.reserved) * Fraction(repr(inventory.ratio)))


def unfit(inventory: Inventory | None, amount: int) -> set[str]:
    """Return how an amount is refused whatever is in use."""
    if inventory is None:
        return {"no_capacity"}
    found = set()
    if amount < inventory.min_unit or amount % inventory.step_size:
        found.add("allocation_invalid")
    if inventory.max_unit is not None and amount > inventory.max_unit:
        found.add("no_capacity")
    return found


def books(uow: UnitOfWork) -> object:
    return uow.hosts.where(), uow.providers.where(), uow.allocations.where()


def compare_generations(before: list[Provider], after: list[Provider]) -> None:
    """A generation grows, by one, exactly where something has changed."""
    known = {provider.id: provider for provider in before}
    for provider in after:
        old = known.get(provider.id)
        if old is not None:
            same = replace(old, generation=0) == replace(provider, generation=0)
            assert provider.generation == old.generation + (0 if same else 1)


def test_placement_does_what_plain_dictionaries_do() -> None:
    run_state_machine_as_test(Placing, settings=settings(stateful_step_count=25))
