"""What the store is asked often, and the statements it asks in turn."""

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.pool import Pool

from conductor.store import Store, UnitOfWork
from tests.contracts.store import records

Question = Callable[[UnitOfWork], object]

QUESTIONS: Mapping[str, Question] = {
    "operations.overdue": lambda uow: uow.operations.overdue(1.0, 5),
    "operations.unanswered": lambda uow: uow.operations.unanswered(1.0, 5),
    "operations.count_waiting_on": lambda uow: uow.operations.count_waiting_on(),
    "operations.census": lambda uow: uow.operations.census(),
    "operations.ended_since": lambda uow: uow.operations.ended_since(1.0, 5),
    "operations.drop_ended_before": lambda uow: uow.operations.drop_ended_before(1.0, 5),
    "operations by instance": lambda uow: uow.operations.where(instance_id="i"),
    "operations by parent": lambda uow: uow.operations.where(parent_id="p"),
    "operations of a parent that run": lambda uow: uow.operations.where(
        parent_id="p", ended_at=None
    ),
    "operations by what they wait on": lambda uow: uow.operations.where(waiting_on="host:h"),
    "operations by state": lambda uow: uow.operations.where(state="RUNNING"),
    "oldest operations": lambda uow: uow.operations.where(limit=1),
    "instances by host": lambda uow: uow.instances.where(host="h"),
    "instances by project": lambda uow: uow.instances.where(project_id="p"),
    "instances by group": lambda uow: uow.instances.where(group="g"),
    "instances by state": lambda uow: uow.instances.where(state="active"),
    "instances.lock_many": lambda uow: uow.instances.lock_many(["a", "b"]),
    "instances.usage": lambda uow: uow.instances.usage("p"),
    "instances.usage of a user": lambda uow: uow.instances.usage("p", "u"),
    "instances.kinds": lambda uow: uow.instances.kinds("p"),
    "instances.kinds of a user": lambda uow: uow.instances.kinds("p", "u"),
    "instances.hosts_of_group": lambda uow: uow.instances.hosts_of_group("g"),
    "instances.drop_deleted_before": lambda uow: uow.instances.drop_deleted_before(1.0, 5),
    "hosts.save_if": lambda uow: uow.hosts.save_if(records.a_host(), 1),
    "hosts by provider": lambda uow: uow.hosts.where(provider_id="p"),
    "providers.save_if": lambda uow: uow.providers.save_if(records.a_provider(), 1),
    "providers by name": lambda uow: uow.providers.where(name=["p", "q"]),
    "providers by parent": lambda uow: uow.providers.where(parent_id="p"),
    "providers by root": lambda uow: uow.providers.where(root_id="p"),
    "allocations by consumer": lambda uow: uow.allocations.where(consumer_id="c"),
    "allocations by host": lambda uow: uow.allocations.where(provider="h"),
    "migrations by instance": lambda uow: uow.migrations.where(instance_id="i"),
    "migrations by source": lambda uow: uow.migrations.where(source="h"),
    "migrations by target": lambda uow: uow.migrations.where(target="h"),
    "events by operation": lambda uow: uow.events.where(operation_id="o"),
    "decisions by instance": lambda uow: uow.decisions.where(instance_id="i"),
    "outbox.older_than": lambda uow: uow.outbox.older_than(1.0, 5),
    "outbox.oldest_at": lambda uow: uow.outbox.oldest_at(),
    "outbox.drop_many": lambda uow: uow.outbox.drop_many(["m"]),
    "dead_letters.drop_before": lambda uow: uow.dead_letters.drop_before(1.0, 5),
    "removals.drop_before": lambda uow: uow.removals.drop_before(1.0, 5),
    "registrations by worker": lambda uow: uow.registrations.where(worker_id="w"),
    "registrations by machine": lambda uow: uow.registrations.where(machine_id="m"),
    "catalogue by kind": lambda uow: uow.catalogue.where(kind="flavor"),
}


def statements_of(store: Store, ask: Question) -> list[tuple[str, Any]]:
    """Return the statements, with their parameters, that a question is made of.

    The store must not have written before: SQLite is listened to from its first connection on.
    """
    asked: list[tuple[str, Any]] = []

    def note(statement: str, params: Any = None) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            asked.append((statement, params))

    def listen(connection: Any, *_: object) -> None:
        if isinstance(connection, psycopg.Connection):
            connection.cursor_factory = _cursor_that_tells(note)
        else:
            connection.set_trace_callback(note)

    event.listen(Pool, "checkout", listen)
    try:
        with store.begin() as uow:
            ask(uow)
    finally:
        event.remove(Pool, "checkout", listen)
    return asked


def _cursor_that_tells(note: Callable[[str, Any], None]) -> type[psycopg.Cursor[Any]]:
    class Telling(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            note(query, params)
            return super().execute(query, params, **options)

    return Telling
