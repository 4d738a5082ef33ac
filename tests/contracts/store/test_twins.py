"""Random work on the in-memory twin and on SQLite at once: no answer may tell them apart."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from conductor.store import Event, Store, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from conductor.store.sql.sql_store import SqlStore
from models.errors import ConductorError
from models.lifecycle import InstanceState, OperationState
from models.messages.internal import OutgoingMessage
from models.tables.schema_upgrade import upgrade
from tests.contracts.store import records

TABLES = (
    "operations",
    "instances",
    "hosts",
    "providers",
    "allocations",
    "migrations",
    "heartbeats",
    "registrations",
    "removals",
    "events",
    "decisions",
    "outbox",
    "dead_letters",
    "catalogue",
)


class Spoiled(Exception):
    """A transaction or savepoint is to be undone."""


@dataclass(frozen=True)
class Call:
    """A call of one method of one table."""

    table: str
    method: str
    arguments: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    def __call__(self, uow: UnitOfWork) -> Any:
        try:
            answer = getattr(getattr(uow, self.table), self.method)(
                *self.arguments, **dict(self.named)
            )
        except ConductorError as error:
            return type(error), error.code
        return _comparable(answer)


@dataclass(frozen=True)
class Post:
    """A message."""

    outgoing: OutgoingMessage

    def __call__(self, uow: UnitOfWork) -> Any:
        uow.post(self.outgoing)
        return [outgoing.id for outgoing in uow.posted]


@dataclass(frozen=True)
class Savepoint:
    """Steps that are kept or undone together."""

    steps: tuple[Any, ...]
    spoiled: bool

    def __call__(self, uow: UnitOfWork) -> Any:
        answers = []
        with suppress(Spoiled), uow.savepoint():
            answers = [step(uow) for step in self.steps]
            if self.spoiled:
                raise Spoiled
        return answers, [outgoing.id for outgoing in uow.posted]


def _comparable(answer: Any) -> Any:
    """Leave out the numbers of events: a rolled-back one may be given again, or not."""
    if isinstance(answer, list):
        return [_comparable(item) for item in answer]
    return replace(answer, id=None) if isinstance(answer, Event) else answer


names = st.sampled_from(["a", "b"])
maybe = st.none() | names
times = st.sampled_from([1.0, 2.0, 3.0])
json_values = st.sampled_from([{}, {"x": 1}, {"x": [1, {"y": None}]}, {"x": (True, 1.5)}])
operations = st.builds(
    records.an_operation,
    names,
    state=st.sampled_from(OperationState),
    data=json_values,
    created_at=times,
    parent_id=maybe,
    instance_id=maybe,
    tries=st.integers(0, 2),
    wake_at=st.none() | times,
    asked_at=st.none() | times,
    ended_at=st.none() | times,
)
instances = st.builds(
    records.an_instance,
    names,
    project_id=names,
    state=st.sampled_from(InstanceState),
    image=st.sampled_from([None, records.IMAGE]),
    created_at=times,
    host=maybe,
    group=maybe,
    placement=st.sampled_from([None, records.PLACEMENT]),
    deleted_at=st.none() | times,
)
hosts = st.builds(
    records.a_host,
    names,
    topology=st.sampled_from([records.TOPOLOGY, replace(records.TOPOLOGY, pci_pools=())]),
    version=st.integers(1, 3),
    enabled=st.booleans(),
)
providers = st.builds(
    records.a_provider,
    names,
    parent_id=maybe,
    generation=st.integers(1, 3),
    used=json_values,
    traits=st.frozensets(names),
)
made = {
    "operations": operations,
    "instances": instances,
    "hosts": hosts,
    "providers": providers,
    "allocations": st.builds(records.an_allocation, names, names, amounts=json_values),
    "migrations": st.builds(records.a_migration, names, target=maybe, created_at=times),
    "heartbeats": st.builds(records.a_heartbeat, names, times),
    "registrations": st.builds(records.a_registration, names, worker_id=names, refused=maybe),
    "removals": st.builds(records.a_removal, names, times),
    "decisions": st.builds(records.a_decision, names, names, times),
    "outbox": st.builds(records.an_outbox_row, names, times),
    "dead_letters": st.builds(records.a_dead_letter, names, times, st.text()),
    "catalogue": st.builds(records.an_entry, names, names, times),
}
keys = {table: st.tuples(names) for table in made} | {
    "allocations": st.tuples(names, names),
    "catalogue": st.tuples(names, names),
}
fields: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "operations": {
        "state": st.sampled_from(OperationState),
        "parent_id": maybe,
        "tries": st.just(1),
    },
    "instances": {"host": maybe, "project_id": names, "group": maybe},
    "hosts": {"enabled": st.booleans(), "version": st.integers(1, 3)},
    "providers": {"parent_id": maybe, "generation": st.integers(1, 3)},
    "allocations": {"provider": names, "consumer_id": names},
    "migrations": {"target": maybe, "source": names},
    "registrations": {"worker_id": names, "troubled": st.booleans()},
    "removals": {"instance_id": names},
    "events": {"operation_id": names},
    "decisions": {"operation_id": names, "flawed": names},
}


def _asked(table: str) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    conditions = {
        name: values | st.sets(values, max_size=2) for name, values in fields[table].items()
    }
    optional = st.fixed_dictionaries({}, optional=conditions)
    return optional.map(lambda asked: tuple(sorted(asked.items())))


def _writes(table: str) -> st.SearchStrategy[Any]:
    record = made[table]
    return st.one_of(
        st.builds(Call, st.just(table), st.sampled_from(["add", "put", "save"]), st.tuples(record)),
        st.builds(
            Call, st.just(table), st.just("add_many"), st.tuples(st.lists(record, max_size=3))
        ),
        st.builds(Call, st.just(table), st.sampled_from(["get", "lock", "drop"]), keys[table]),
    )


def _call(table: str, method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.builds(Call, st.just(table), st.just(method), st.tuples(*arguments))


limits = st.integers(0, 3)
questions = st.one_of(
    _call("operations", "overdue", times, limits),
    _call("operations", "unanswered", times, limits),
    _call("operations", "drop_ended_before", times, limits),
    _call("instances", "usage", names),
    _call("instances", "hosts_of_group", names),
    _call("instances", "lock_many", st.lists(names)),
    _call("instances", "drop_deleted_before", times, limits),
    _call("hosts", "save_if", hosts, st.integers(1, 3)),
    _call("hosts", "versions"),
    _call("providers", "save_if", providers, st.integers(1, 3)),
    _call("providers", "versions"),
    _call("outbox", "older_than", times, limits),
    _call("outbox", "drop_many", st.lists(names)),
    _call("dead_letters", "drop_before", times, limits),
    _call("removals", "drop_before", times, limits),
    _call("events", "add", st.builds(records.an_event, names, times, names)),
)
searches = st.one_of(
    *(
        st.builds(Call, st.just(table), st.just(method), st.just(()), _asked(table))
        for table in fields
        for method in ("where", "count")
    )
)
posts = st.builds(
    Post, st.builds(OutgoingMessage, names, names, json_values, id=names, shown=st.text())
)
calls = st.one_of(*(_writes(table) for table in made), questions, searches, posts)


def _steps(calls: st.SearchStrategy[Any], least: int) -> st.SearchStrategy[list[Any]]:
    savepoints = st.builds(
        Savepoint, st.lists(calls, min_size=1, max_size=3).map(tuple), st.booleans()
    )
    return st.lists(calls | savepoints, min_size=least, max_size=2 * least)


# Half of the transactions stay with two small records, where one step meets what another left.
beats = st.builds(records.a_heartbeat, names, st.sampled_from([1.0, 2.0]))
beating = st.one_of(
    _call("heartbeats", "put", beats),
    _call("heartbeats", "save", beats),
    _call("heartbeats", "lock", names),
    _call("heartbeats", "drop", names),
)
steps = _steps(calls, 3) | _steps(beating, 5)


class Twins(RuleBasedStateMachine):
    """Two stores that are asked the same."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = shutil.copy(self.template, Path(self.folder.name) / "twin.db")
        self.memory: Store = MemoryStore(lambda: 2.0)
        self.database: Store = SqlStore(f"sqlite:///{path}", lambda: 2.0)

    @rule(work=steps, spoiled=st.booleans())
    def write(self, work: list[Callable[[UnitOfWork], Any]], spoiled: bool) -> None:
        for step, ours, theirs in zip(
            work,
            _done(self.memory, work, spoiled),
            _done(self.database, work, spoiled),
            strict=True,
        ):
            assert ours == theirs, step

    @invariant()
    def hold_the_same(self) -> None:
        with self.memory.read() as ours, self.database.read() as theirs:
            for table in TABLES:
                assert Call(table, "where")(ours) == Call(table, "where")(theirs), table

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()


def _done(store: Store, work: list[Callable[[UnitOfWork], Any]], spoiled: bool) -> list[Any]:
    answers: list[Any] = []
    with suppress(Spoiled), store.begin() as uow:
        answers = [step(uow) for step in work]
        if spoiled:
            raise Spoiled
    return answers


def test_memory_and_sqlite_cannot_be_told_apart(tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path}/empty.db")
    machine = type("Twins", (Twins,), {"template": tmp_path / "empty.db"})
    run_state_machine_as_test(
        machine,
        settings=settings(stateful_step_count=10),
    )
