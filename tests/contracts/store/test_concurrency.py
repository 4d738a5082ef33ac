"""What the store promises when several threads, stores and processes use it at once."""

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from conductor.store import Store, UnitOfWork
from conductor.store.sql.sql_store import SqlStore
from models.errors import Broken, Conflict, Unreachable
from models.tables.schema_upgrade import upgrade
from tests.contracts.store import records
from tests.contracts.store.conftest import WAIT_S, Opener

RACERS = 4
ROUNDS = 15
PATIENCE_S = 30


def insist(store: Store, work: Callable[[UnitOfWork], None]) -> None:
    """Do what a `Conflict` asks for: read again, retry now."""
    while True:
        try:
            with store.begin() as uow:
                work(uow)
        except Conflict:
            continue
        return


def count_up(uow: UnitOfWork) -> None:
    operation = uow.operations.lock("op-1")
    assert operation is not None
    uow.operations.save(replace(operation, tries=operation.tries + 1))


def count_up_often(store: Store) -> None:
    for _ in range(ROUNDS):
        insist(store, count_up)


def count_up_in_a_process(url: str) -> None:
    store = SqlStore(url)
    count_up_often(store)
    store.close()


def together(jobs: list[Callable[[], None]]) -> None:
    """Run jobs in threads of their own that set off at the same moment; raise their errors."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        start.wait(PATIENCE_S)
        job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(run, job) for job in jobs]:
            running.result(PATIENCE_S)


def tries_of(store: Store) -> int:
    with store.read() as uow:
        operation = uow.operations.get("op-1")
        assert operation is not None
        return operation.tries


@pytest.mark.parametrize("stores", ["one store", "stores of their own"])
def test_a_locked_record_is_changed_by_one_thread_at_a_time(opener: Opener, stores: str) -> None:
    store = opener()
    with store.begin() as uow:
        uow.operations.add(records.an_operation())
    shared = [store] * RACERS if stores == "one store" else [opener() for _ in range(RACERS)]
    together([lambda item=item: count_up_often(item) for item in shared])
    assert tries_of(store) == RACERS * ROUNDS


def test_a_lock_waits_and_then_gives_the_newest_record(opener: Opener) -> None:
    store, other = opener(), opener()
    with store.begin() as uow:
        uow.operations.add(records.an_operation())
    locked, seen = threading.Event(), list[int]()

    def first() -> None:
        with store.begin() as uow:
            operation = uow.operations.lock("op-1")
            assert operation is not None
            locked.set()
            uow.operations.save(replace(operation, tries=7))

    def second() -> None:
        locked.wait(PATIENCE_S)
        insist(other, lambda uow: seen.append(getattr(uow.operations.lock("op-1"), "tries", -1)))

    together([first, second])
    assert seen == [7]


def test_waiting_too_long_for_a_lock_is_no_answer(opener: Opener) -> None:
    store, other = opener(), opener()
    with store.begin() as uow:
        uow.operations.add(records.an_operation())
    conflicts = list[str]()

    def impatient() -> None:
        try:
            with other.begin() as uow:
                uow.operations.lock("op-1")
        except Unreachable as error:
            conflicts.append(error.code)

    with store.begin() as uow:
        uow.operations.lock("op-1")
        together([impatient])
    assert conflicts in (["database_busy"], ["lock_timeout"])
    assert WAIT_S < 1
    together([impatient])
    assert len(conflicts) == 1


def test_of_many_claims_on_one_version_exactly_one_succeeds(opener: Opener) -> None:
    store = opener()
    with store.begin() as uow:
        uow.hosts.add(records.a_host())
    won = list[str]()

    def claim(racer: Store, name: str) -> None:
        def once(uow: UnitOfWork) -> None:
            if uow.hosts.save_if(records.a_host(version=2, boot_id=name), 1):
                won.append(name)

        insist(racer, once)

    racers = [opener() for _ in range(RACERS)]
    together([lambda i=i, item=item: claim(item, f"r{i}") for i, item in enumerate(racers)])
    assert len(won) == 1
    with store.read() as uow:
        assert uow.hosts.get("h-1") == records.a_host(version=2, boot_id=won[0])


def test_of_many_that_add_one_key_exactly_one_succeeds(opener: Opener) -> None:
    stores = [opener() for _ in range(RACERS)]
    outcomes = list[str]()

    def add(racer: Store, name: str) -> None:
        with racer.begin() as uow:
            try:
                uow.operations.add(records.an_operation(user_id=name))
            except Conflict as conflict:
                outcomes.append(conflict.code)
                # The transaction goes on: what it does next is committed.
                uow.events.add(records.an_event(event=name))
            else:
                outcomes.append("added")

    together([lambda i=i, store=store: add(store, f"r{i}") for i, store in enumerate(stores)])
    assert sorted(outcomes) == ["added"] + ["exists"] * (RACERS - 1)
    with stores[0].read() as uow:
        assert uow.events.count() == RACERS - 1


def test_locking_many_in_any_order_never_deadlocks(opener: Opener) -> None:
    store = opener()
    with store.begin() as uow:
        uow.instances.add_many([records.an_instance(name) for name in "abcd"])
    conflicts = list[Conflict]()

    def lock(racer: Store, order: str) -> None:
        for _ in range(ROUNDS):
            try:
                with racer.begin() as uow:
                    locked = uow.instances.lock_many(order)
                    uow.instances.save(replace(locked[order[0]], fence=locked[order[0]].fence + 1))
            except Conflict as conflict:
                conflicts.append(conflict)

    together([lambda order=order: lock(opener(), order) for order in ("abcd", "dcba", "bdac")])
    assert [item for item in conflicts if item.code == "deadlock"] == []


def test_a_name_is_locked_by_one_transaction_at_a_time_though_no_record_has_it(
    opener: Opener,
) -> None:
    def pass_often(racer: Store) -> None:
        def once(uow: UnitOfWork) -> None:
            uow.lock("consumer c")
            # Read without a lock: only the name keeps others from counting the same.
            count = len(uow.events.where(operation_id="op-1"))
            uow.events.add(records.an_event(event=str(count)))

        for _ in range(ROUNDS):
            insist(racer, once)

    racers = [opener() for _ in range(RACERS)]
    together([lambda store=store: pass_often(store) for store in racers])
    with opener().read() as uow:
        counted = sorted(int(event.event) for event in uow.events.where(operation_id="op-1"))
    assert counted == list(range(RACERS * ROUNDS))


def test_names_that_differ_do_not_wait_and_a_lock_ends_with_its_transaction(
    postgresql_url: str,
) -> None:
    store, other = SqlStore(postgresql_url, wait_s=WAIT_S), SqlStore(postgresql_url, wait_s=WAIT_S)
    seen = list[str]()

    def second() -> None:
        for name in ("b", "a"):
            try:
                with other.begin() as uow:
                    uow.lock(name)
                    uow.events.count()
                    seen.append(name)
            except Unreachable as error:
                seen.append(error.code)

    with store.begin() as uow:
        uow.lock("a")
        uow.events.count()
        together([second])
    together([second])
    assert seen == ["b", "lock_timeout", "b", "a"]
    store.close()
    other.close()


def test_a_name_is_not_locked_to_read(store: Store) -> None:
    with store.read() as uow, pytest.raises(Broken):
        uow.lock("a")


def test_readers_see_whole_transactions_while_writers_write(opener: Opener) -> None:
    store = opener()
    with store.begin() as uow:
        uow.hosts.add_many([records.a_host("a"), records.a_host("b")])
    done = threading.Event()
    torn = list[tuple[int, ...]]()

    def write() -> None:
        for version in range(2, 2 + ROUNDS):
            with store.begin() as uow:
                uow.hosts.save(records.a_host("a", version=version))
                uow.hosts.save(records.a_host("b", version=version))
        done.set()

    def read(reader: Store) -> None:
        while not done.is_set():
            with reader.read() as uow:
                versions = {host.version for host in uow.hosts.where()}
                versions |= set(uow.hosts.versions().values())
                if len(versions) > 1:
                    torn.append(tuple(versions))

    together([write, lambda: read(store), lambda: read(opener())])
    assert torn == []


def test_processes_share_a_sqlite_file(sqlite_url: str) -> None:
    store = SqlStore(sqlite_url)
    with store.begin() as uow:
        uow.operations.add(records.an_operation())
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=count_up_in_a_process, args=(sqlite_url,)) for _ in "ab"]
    for process in processes:
        process.start()
    count_up_often(store)
    for process in processes:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    assert tries_of(store) == 3 * ROUNDS
    store.close()


def test_upgrades_at_the_same_time_upgrade_once(
    tmp_path: str, fresh_database: Callable[[], str]
) -> None:
    for url in (f"sqlite:///{tmp_path}/new.db", fresh_database()):
        applied = list[list[str]]()
        together([lambda url=url, applied=applied: applied.append(upgrade(url))] * 3)
        assert sorted(map(len, applied)) == [0, 0, max(map(len, applied))]
        assert upgrade(url) == []
