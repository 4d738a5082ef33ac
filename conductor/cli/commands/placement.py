"""Resource providers, and an audit of their allocations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Final

import typer

from conductor.cli.commands.placement_providers import add_verbs
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.request_sending import run_transaction
from conductor.exit_codes import say
from conductor.placement.consistency.allocation_audit import Finding, audit, read_books
from conductor.placement.consistency.heal import heal_consumer, heal_provider
from conductor.placement.sync.mirror import Difference
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.processes.placement_server import mirror_of
from models.errors import Rejected

NO: Final = 3
"""Exit code of an audit that finds something, and of a healing that leaves something."""

_WOULD: Final = "would be healed"
_LEFT: Final = "left: somebody has to move or change something"
_COLUMNS: Final = (
    ("provider", key("provider")),
    ("finding", key("code")),
    ("what", key("message")),
    ("healable", key("healable")),
)
_HEALED_COLUMNS: Final = (*_COLUMNS[:3], ("outcome", key("outcome")))


def add_to(app: typer.Typer) -> None:
    """Add `placement` with its verbs."""
    group = typer.Typer(help="Resource providers, and an audit of their allocations.")
    add_verbs(group)
    group.command("audit")(audit_all)
    group.command("heal")(heal)
    app.add_typer(group, name="placement", no_args_is_help=True)


def audit_all(output: Output = None) -> None:
    """Compare allocations with instances and with recorded use; exit 3 where they differ."""
    with open_database() as here:
        rows = [_row(finding) for finding in _findings(here)]
        rows += [_difference_row(difference) for difference in _differences(here)]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))
    if not rows:
        say("everything adds up")
    raise typer.Exit(NO if rows else 0)


def heal(
    apply: Annotated[bool, typer.Option("--apply", help="Change it; without, only list.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also instances with a move in flight.")
    ] = False,
    output: Output = None,
) -> None:
    """Put right what an audit finds; lists what it would do, unless --apply is given."""
    with open_database() as here:
        healings = [
            _Healing(finding, _WOULD if finding.healable else _LEFT) for finding in _findings(here)
        ]
        if apply:
            healings = _heal_all(here, [healing.finding for healing in healings], force=force)
        rows = [{**_row(healing.finding), "outcome": healing.outcome} for healing in healings]
        mirrored, failed = _heal_mirror(here, apply=apply)
        rows += mirrored
    show_all(rows, output, lambda: table_of(rows, _HEALED_COLUMNS))
    left = sum(not healing.done for healing in healings) + failed
    say(f"{len(rows) - left} healed, {left} left" if apply else _advice(rows))
    raise typer.Exit(NO if left and apply else 0)


@dataclass(frozen=True, slots=True)
class _Healing:
    finding: Finding
    outcome: str
    done: bool = False


def _findings(here: DatabaseAccess) -> list[Finding]:
    with here.store.read() as uow:
        books = read_books(uow)
    return audit(books)


def _differences(here: DatabaseAccess) -> list[Difference]:
    """Return where allocations differ from those of the Placement server, if there is one."""
    mirror = mirror_of(here.settings, here.store)
    return list(mirror.differences()) if mirror else []


def _heal_mirror(here: DatabaseAccess, *, apply: bool) -> tuple[list[dict[str, Any]], int]:
    """Return the differences with their outcomes, and how many are left."""
    mirror = mirror_of(here.settings, here.store)
    before = list(mirror.differences()) if mirror else []
    if mirror is None or not apply or not before:
        return [{**_difference_row(difference), "outcome": _WOULD} for difference in before], 0
    mirror.follow()
    left = {(difference.provider, difference.consumer_id) for difference in mirror.differences()}
    rows = [
        {
            **_difference_row(difference),
            "outcome": "left"
            if (difference.provider, difference.consumer_id) in left
            else "healed",
        }
        for difference in before
    ]
    return rows, len(left)


def _difference_row(difference: Difference) -> dict[str, Any]:
    here, there = dict(difference.here), dict(difference.there)
    return {
        "code": "server",
        "provider": difference.provider,
        "consumer_id": difference.consumer_id,
        "message": f"{difference.consumer_id} holds {here} here and {there} at the server",
        "healable": True,
    }


def _heal_all(here: DatabaseAccess, findings: Sequence[Finding], *, force: bool) -> list[_Healing]:
    """Heal consumers, then use that is still recorded wrongly; each in a transaction of its own."""
    refused: dict[tuple[str, str | None], str] = {}
    run = partial(run_transaction, here)
    for finding in sorted(findings, key=lambda entry: entry.consumer_id is None):
        if not finding.healable:
            continue
        try:
            if finding.consumer_id is not None:
                run(partial(heal_consumer, consumer_id=finding.consumer_id, force=force))
            else:
                run(partial(heal_provider, name=finding.provider, force=force))
        except Rejected as error:
            refused[finding.provider, finding.consumer_id] = error.message
    left = {(finding.provider, finding.consumer_id, finding.code) for finding in _findings(here)}
    return [_outcome(finding, refused, left) for finding in findings]


def _outcome(
    finding: Finding,
    refused: dict[tuple[str, str | None], str],
    left: set[tuple[str, str | None, Any]],
) -> _Healing:
    if (finding.provider, finding.consumer_id, finding.code) not in left:
        return _Healing(finding, "healed", done=True)
    why = refused.get((finding.provider, finding.consumer_id))
    return _Healing(finding, why or _LEFT)


def _row(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "healable": finding.healable}


def _advice(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "everything adds up"
    healable = sum(bool(row["healable"]) for row in rows)
    return f"nothing is changed; --apply would heal {healable} of {len(rows)}"
