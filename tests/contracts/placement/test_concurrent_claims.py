"""Claims of many at once: all that there is room for succeed, nothing is over-committed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from conductor.placement.local.host_claims import HostAllocation, allocate
from conductor.placement.local.instance_allocations import release
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import Consumer, Reshaping, over_committed, provider_id_of
from conductor.store import Allocation, Inventory, Store, UnitOfWork
from conductor.store.sql.sql_store import SqlStore
from models.errors import ConductorError, Conflict, NoValidHost, Rejected, Unreachable
from tests.benchmarks.claiming import FULL, offer, overcommitted, race
from tests.placement.one_host import a_root

CLAIMS, STORES, ATTEMPTS, ROUNDS = 50, 4, 8, 10
ROOT = provider_id_of("h1")
PATIENCE_S = 60

Work = Callable[[UnitOfWork], object]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of a database of each kind, with tables and without rows."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def stores(url: str) -> Iterator[Sequence[Store]]:
    """Some stores on it, each as a process of its own would open it."""
    with ExitStack() as opened:
        yield [opened.enter_context(closing(SqlStore(url))) for _ in range(STORES)]


def outcome(store: Store, work: Work, attempts: int = ATTEMPTS) -> str:
    """Do it in a transaction, anew after a conflict; return `done`, or the code it ended with."""
    retrying = Retrying(
        retry=retry_if_exception_type((Conflict, Unreachable)),  # busy: again, as a message is
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt, store.begin() as uow:
                work(uow)
    except ConductorError as error:
        return error.code
    return "done"


def together(stores: Sequence[Store], works: Sequence[Work], attempts: int = ATTEMPTS) -> list[str]:
    """Do each in a thread of its own, all at the same moment; return the outcomes in order."""
    start = threading.Barrier(len(works))

    def run(number: int) -> str:
        start.wait(PATIENCE_S)
        return outcome(stores[number % len(stores)], works[number], attempts)

    with ThreadPoolExecutor(len(works)) as pool:
        return [
            future.result(PATIENCE_S) for future in [pool.submit(run, n) for n in range(len(works))]
        ]


def offer_one(store: Store, provider_id: str, total: int, name: str = "VGPU") -> None:
    with store.begin() as uow:
        placement = StorePlacement(uow)
        made = placement.ensure_provider(provider_id, f"name of {provider_id}")
        placement.set_inventories(provider_id, {name: Inventory(total)}, made.generation)


def claim(consumer_id: str, *provider_ids: str) -> Work:
    """Read what the consumer holds and let it hold one VGPU of each provider."""

    def work(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        held = {provider_identifier: {"VGPU": 1} for provider_identifier in provider_ids}
        placement.write([replace(placement.consumer(consumer_id), allocations=held)])

    return work


def used(store: Store, provider_id: str) -> dict[str, int]:
    """Return what is in use of a provider, once the books and the consumers say the same."""
    with store.read() as uow:
        placement = StorePlacement(uow)
        provider = placement.provider(provider_id)
        total: Counter[str] = Counter()
        for consumer in placement.consumers_of(provider_id).values():
            total.update(consumer)
    assert provider is not None
    assert provider.used == total
    return dict(total)


@pytest.mark.parametrize("room", [CLAIMS, CLAIMS - 1])
def test_fifty_claims_at_once_take_exactly_the_room_there_is(
    stores: Sequence[Store], room: int
) -> None:
    offer_one(stores[0], "gpu", room)
    ended = together(stores, [claim(f"c{number}", "gpu") for number in range(CLAIMS)])
    assert Counter(ended) == Counter({"done": room} | ({FULL: 1} if room < CLAIMS else {}))
    assert used(stores[0], "gpu") == {"VGPU": room}


def test_claims_on_two_providers_in_any_order_never_deadlock(stores: Sequence[Store]) -> None:
    for name in ("a", "b"):
        offer_one(stores[0], name, 40)
    pairs = [("a", "b") if number % 2 else ("b", "a") for number in range(20)]
    works = [claim(f"c{number}", *pair) for number, pair in enumerate(pairs)]
    assert together(stores, works, attempts=1) == ["done"] * 20
    assert used(stores[0], "a") == used(stores[0], "b") == {"VGPU": 20}


@pytest.mark.parametrize("held", [0, 1], ids=["holding nothing", "holding something"])
def test_of_many_that_write_under_one_generation_one_succeeds(
    stores: Sequence[Store], held: int
) -> None:
    for name in ("a", "b"):
        offer_one(stores[0], name, 20)
    if held:
        assert outcome(stores[0], claim("c", "a")) == "done"
    with stores[0].read() as uow:
        read = StorePlacement(uow).consumer("c")
    works = [
        # Of different providers: nothing but the consumer is what they have in common.
        lambda uow, number=number: StorePlacement(uow).write(
            [replace(read, allocations={"ab"[number % 2]: {"VGPU": 2 + number}})]
        )
        for number in range(8)
    ]
    ended = together(stores, works, attempts=1)
    assert Counter(ended) == {"done": 1, "generation_conflict": 7}
    one, none = sorted((used(stores[0], name) for name in ("a", "b")), key=len, reverse=True)
    assert one == {"VGPU": 2 + ended.index("done")}
    assert none == {}


def test_moves_of_two_consumers_each_way_never_deadlock(stores: Sequence[Store]) -> None:
    for name in ("a", "b"):
        offer_one(stores[0], name, 1)
    assert outcome(stores[0], claim("c", "a")) == outcome(stores[0], claim("d", "b")) == "done"

    def swap(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        uow.lock("consumer c")
        uow.lock("consumer d")
        first, second = placement.consumer("c"), placement.consumer("d")
        placement.write(
            [
                replace(second, allocations=first.allocations),
                replace(first, allocations=second.allocations),
            ]
        )

    assert together(stores, [swap] * 9, attempts=1) == ["done"] * 9
    assert used(stores[0], "a") == used(stores[0], "b") == {"VGPU": 1}


def test_claims_of_instances_and_of_the_port_share_one_account(stores: Sequence[Store]) -> None:
    with stores[0].begin() as uow:
        uow.hosts.add(a_root("h1"))

    def claim_as_instance(name: str) -> Work:
        def work(uow: UnitOfWork) -> None:
            known = uow.hosts.lock("h1")
            assert known is not None
            assert allocate(uow, known, [HostAllocation(name, "p", None, {"DISK_GB": 1})])

        return work

    def claim_by_port(name: str) -> Work:
        held = {ROOT: {"DISK_GB": 1}}
        return lambda uow: StorePlacement(uow).write([Consumer(name, held)])

    both = (claim_as_instance, claim_by_port)
    works = [both[number % 2](f"c{number}") for number in range(20)]
    assert together(stores, works) == ["done"] * 20
    assert used(stores[0], ROOT) == {"DISK_GB": 20}

    def give_up(name: str) -> Work:
        def work(uow: UnitOfWork) -> None:
            for held in uow.allocations.where(consumer_id=name):
                release(uow, held, None)

        return work

    def empty(name: str) -> Work:
        def work(uow: UnitOfWork) -> None:
            placement = StorePlacement(uow)
            placement.write([replace(placement.consumer(name), allocations={})])

        return work

    # Everybody is released in both ways at once, and given back once.
    works = [way(f"c{number}") for number in range(20) for way in (give_up, empty)]
    assert together(stores, works) == ["done"] * 40
    assert used(stores[0], ROOT) == {}
    with stores[0].read() as uow:
        after = uow.hosts.get("h1")
        assert after is not None
        assert after.instances == 0


def test_a_provider_is_deleted_or_claimed_and_never_both(stores: Sequence[Store]) -> None:
    for number in range(ROUNDS):
        name = f"gpu-{number}"
        offer_one(stores[0], name, 1)
        works = [claim(f"c{number}", name), lambda uow, name=name: _delete(uow, name)]
        ended = together(stores, works)
        assert ended in (["done", "provider_in_use"], ["provider_unknown", "done"])


def _delete(uow: UnitOfWork, name: str) -> None:
    StorePlacement(uow).delete_provider(name)


def test_a_child_never_outlives_its_parents_deletion(stores: Sequence[Store]) -> None:
    for number in range(ROUNDS):
        name = f"gpu-{number}"
        offer_one(stores[0], name, 1)
        works: list[Work] = [
            lambda uow, name=name: StorePlacement(uow).ensure_provider(f"{name}-0", name, name),
            lambda uow, name=name: _delete(uow, name),
        ]
        ended = together(stores, works)
        assert ended in (["done", "provider_has_children"], ["provider_unknown", "done"])


def test_a_provider_that_many_ensure_is_made_once(stores: Sequence[Store]) -> None:
    for number in range(ROUNDS):
        works: list[Work] = [
            lambda uow, number=number: StorePlacement(uow).ensure_provider(
                f"id-{number}", f"gpu-{number}"
            )
        ] * 6
        assert together(stores, works, attempts=1) == ["done"] * 6


def test_a_reshape_among_claims_leaves_exact_books(stores: Sequence[Store]) -> None:
    offer_one(stores[0], "gpu", 30)
    assert outcome(stores[0], claim("c", "gpu")) == "done"

    def grow(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        known, held = placement.provider("gpu"), placement.consumer("c")
        assert known is not None
        more = replace(known.inventories["VGPU"], total=known.inventories["VGPU"].total + 1)
        amount = held.allocations["gpu"]["VGPU"] + 1
        placement.reshape(
            [Reshaping("gpu", {"VGPU": more}, known.generation)],
            [replace(held, allocations={"gpu": {"VGPU": amount}})],
        )

    works = [grow if number < 4 else claim(f"d{number}", "gpu") for number in range(20)]
    ended = together(stores, works, attempts=40)
    assert ended == ["done"] * 20
    assert used(stores[0], "gpu") == {"VGPU": 5 + 16}
    with stores[0].read() as uow:
        after = uow.providers.get("gpu")
        assert after is not None
        assert after.inventories["VGPU"].total == 34
        assert not over_committed(after)


def test_after_a_refusal_the_same_transaction_takes_the_next_candidate(
    stores: Sequence[Store],
) -> None:
    offer_one(stores[0], "full", 1)
    offer_one(stores[0], "free", 1)
    assert outcome(stores[0], claim("c", "full")) == "done"
    with stores[0].begin() as uow:
        for name, code in (("full", NoValidHost), ("nobody", Rejected)):
            with pytest.raises(code):
                claim("d", "free", name)(uow)
        claim("d", "free")(uow)
    assert used(stores[0], "free") == used(stores[0], "full") == {"VGPU": 1}


def test_who_was_overtaken_by_a_claim_that_takes_no_turns_can_go_on(postgresql_url: str) -> None:
    with closing(SqlStore(postgresql_url)) as store, closing(SqlStore(postgresql_url)) as other:
        offer_one(store, "gpu", 4)
        row = Allocation("c", "name of gpu", {"VGPU": 1}, project_id="p")
        with store.begin() as uow:
            placement = StorePlacement(_Overtaken(uow, lambda: _add(other, row)))
            with pytest.raises(Conflict) as caught:
                placement.write([Consumer("c", {"gpu": {"VGPU": 2}})])
            claim("d", "gpu")(uow)
        assert caught.value.code == "generation_conflict"
        with store.read() as uow:
            assert {allocation.consumer_id for allocation in uow.allocations.where()} == {"c", "d"}


class _Overtaken:
    """A unit of work in which somebody else commits once its consumer was looked at."""

    def __init__(self, uow: UnitOfWork, meanwhile: Callable[[], None]) -> None:
        self._uow = uow
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        if name == "providers" and self._meanwhile:
            self._meanwhile.pop()()
        return getattr(self._uow, name)


def _add(store: Store, row: Allocation) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(outcome, store, lambda uow: uow.allocations.add(row)).result(PATIENCE_S)


def test_processes_that_claim_until_nothing_is_left_over_commit_nothing(
    stores: Sequence[Store], url: str
) -> None:
    offer(stores[0], 25)
    ended = race(url, processes=4)
    assert (overcommitted(stores[0]), ended.failed, ended.claimed) == (0, 0, 25)
    assert ended.outcomes[FULL] == 75
