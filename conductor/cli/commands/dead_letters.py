"""Dead letters: messages that could not be handled; list, show, replay, drop."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from conductor.cli.options import Limit
from conductor.cli.rendering.json_views import moment
from conductor.cli.rendering.output import Output, newest, show_all, show_one
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.requests.request_sending import refuse_unless_alive, run_transaction
from conductor.cli.store_queries import only_one
from conductor.exit_codes import say
from conductor.processes.database_access import open_database
from conductor.store import DeadLetter, UnitOfWork
from models.errors import Rejected
from models.ids import is_uuid, new_operation_id
from models.json_types import JsonDict
from models.messages.internal import CONDUCTOR, REPORTS, OutgoingMessage
from models.messages.versions import VERSION_UNSUPPORTED

Id = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")]
_ID_IN_USE: Final = ("duplicate_id", VERSION_UNSUPPORTED)
_COLUMNS: Final = tuple((name, key(name)) for name in ("id", "at", "queue", "task", "reason"))


def add_to(app: typer.Typer) -> None:
    """Add `dead-letters` with its verbs."""
    dead_letters = typer.Typer(help="Messages that could not be handled, with the reason.")
    dead_letters.command("list")(list_all)
    dead_letters.command("show")(show)
    dead_letters.command("replay")(replay)
    dead_letters.command("drop")(drop)
    app.add_typer(dead_letters, name="dead-letters", no_args_is_help=True)


def list_all(limit: Limit = 100, output: Output = None) -> None:
    """List dead letters, oldest first."""
    with open_database() as here, here.store.read() as uow:
        rows = [_view(dead_letter) for dead_letter in newest(uow.dead_letters.where(), limit)]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(dead_letter: Id, output: Output = None) -> None:
    """Show one dead letter with its headers and body."""
    with open_database() as here, here.store.read() as uow:
        row = _view(_found(uow, dead_letter))
    show_one(row, output, lambda: fields_of(row))


def replay(dead_letter: Id) -> None:
    """Send a message again, under its own id where it has one; the dead letter goes.

    A request whose id belongs to another one, or to the operation that failed because a release
    did not know its version, gets a new id: it is another operation.
    """
    with open_database() as here:
        with here.store.read() as uow:
            dead = _found(uow, dead_letter)
            if here.settings.embedded:
                refuse_unless_alive(uow)
        body = _body(dead)
        _refuse_report(dead)
        message_id = str(dead.headers.get("id", ""))
        in_use = dead.reason.startswith(_ID_IN_USE) or not is_uuid(message_id)
        again = OutgoingMessage(
            dead.queue or CONDUCTOR, dead.task, body, new_operation_id() if in_use else message_id
        )

        def send_again(uow: UnitOfWork) -> None:
            if uow.dead_letters.drop(dead.id):
                uow.post(again)

        run_transaction(here, send_again)
    say(f"sent again as {again.id}")


def drop(dead_letter: Id) -> None:
    """Delete a dead letter."""
    with open_database() as here, here.store.begin() as uow:
        uow.dead_letters.drop(_found(uow, dead_letter).id)
    say(f"dead letter {dead_letter} dropped")


def _found(uow: UnitOfWork, dead_letter: str) -> DeadLetter:
    found = uow.dead_letters.get(dead_letter) or only_one(
        uow.dead_letters, dead_letter, "dead letters", "ID"
    )
    if found is None:
        raise Rejected("dead_letter_unknown", f"ID is {dead_letter}: no such dead letter", key="ID")
    return found


def _refuse_report(dead: DeadLetter) -> None:
    """Raise `Rejected` for a report: replayed by an operator it would pass as the host's own."""
    if dead.queue == REPORTS:
        message = f"ID is {dead.id}: it is a report of a host, which the host itself sends again"
        raise Rejected("dead_letter_of_a_host", message, key="ID")


def _body(dead: DeadLetter) -> JsonDict:
    try:
        body = json.loads(dead.body)
    except ValueError:
        body = None
    if isinstance(body, list) and len(body) > 1:
        body = body[1]  # as Celery writes it: arguments, keyword arguments, embedded tasks
    if not isinstance(body, dict) or not dead.task:
        message = f"ID is {dead.id}: its body is no JSON object of a known task"
        raise Rejected("dead_letter_unreadable", message, key="ID")
    return body


def _view(dead: DeadLetter) -> JsonDict:
    return {
        "id": dead.id,
        "at": moment(dead.at),
        "queue": dead.queue,
        "task": dead.task,
        "reason": dead.reason,
        "headers": dict(dead.headers),
        "body": dead.body,
    }
