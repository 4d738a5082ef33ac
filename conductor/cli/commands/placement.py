"""Resource providers, and whether what is claimed of them adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Final

import typer

from conductor.cli.commands.providers import add_verbs
from conductor.cli.failures import say
from conductor.cli.output import Output, show_all
from conductor.cli.partner import partner_of
from conductor.cli.reach import Reach, reach
from conductor.cli.sending import carrier_of
from conductor.cli.tables import key, table_of
from conductor.outbox import Outbox
from conductor.placement.audit import Finding, audit, read_books
from conductor.placement.heal import heal_consumer, heal_provider
from conductor.placement.partner import Difference
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
    group = typer.Typer(help="Resource providers, and whether what is claimed of them adds up.")
    add_verbs(group)
    group.command("audit")(audit_all)
    group.command("heal")(heal)
    app.add_typer(group, name="placement", no_args_is_help=True)


def audit_all(output: Output = None) -> None:
    """Add up who should hold what, who does and what is noted; exit 3 where it differs."""
    with reach() as here:
        rows = [_row(each) for each in _findings(here)]
        rows += [_told(each) for each in _differences(here)]
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
    """Put right what an audit finds; lists what it would do unless told to apply it."""
    with reach() as here:
        healings = [_Healing(each, _WOULD if each.healable else _LEFT) for each in _findings(here)]
        if apply:
            healings = _heal_all(here, [each.finding for each in healings], force=force)
        rows = [{**_row(each.finding), "outcome": each.outcome} for each in healings]
        told, failed = _tell(here, apply=apply)
        rows += told
    show_all(rows, output, lambda: table_of(rows, _HEALED_COLUMNS))
    left = sum(not each.done for each in healings) + failed
    say(f"{len(rows) - left} healed, {left} left" if apply else _advice(rows))
    raise typer.Exit(NO if left and apply else 0)


@dataclass(frozen=True, slots=True)
class _Healing:
    finding: Finding
    outcome: str
    done: bool = False


def _findings(here: Reach) -> list[Finding]:
    with here.store.read() as uow:
        books = read_books(uow)
    return audit(books)


def _differences(here: Reach) -> list[Difference]:
    """Return what our consumers hold otherwise at the Placement server, if there is one."""
    partner = partner_of(here.settings, here.store)
    return list(partner.differences()) if partner else []


def _tell(here: Reach, *, apply: bool) -> tuple[list[dict[str, Any]], int]:
    """Return the differences with what becomes of them, and how many are left."""
    partner = partner_of(here.settings, here.store)
    before = list(partner.differences()) if partner else []
    if partner is None or not apply or not before:
        return [{**_told(each), "outcome": _WOULD} for each in before], 0
    partner.follow()
    left = {(each.provider, each.consumer_id) for each in partner.differences()}
    rows = [
        {
            **_told(each),
            "outcome": "left" if (each.provider, each.consumer_id) in left else "healed",
        }
        for each in before
    ]
    return rows, len(left)


def _told(difference: Difference) -> dict[str, Any]:
    here, there = dict(difference.here), dict(difference.there)
    return {
        "code": "server",
        "provider": difference.provider,
        "consumer_id": difference.consumer_id,
        "message": f"{difference.consumer_id} holds {here} here and {there} at the server",
        "healable": True,
    }


def _heal_all(here: Reach, findings: Sequence[Finding], *, force: bool) -> list[_Healing]:
    """Heal consumers, then what is still noted wrongly; each in a transaction of its own."""
    refused: dict[tuple[str, str | None], str] = {}
    run = Outbox(here.store, carrier_of(here)).run
    for each in sorted(findings, key=lambda finding: finding.consumer_id is None):
        if not each.healable:
            continue
        try:
            if each.consumer_id is not None:
                run(partial(heal_consumer, consumer_id=each.consumer_id, force=force))
            else:
                run(partial(heal_provider, name=each.provider, force=force))
        except Rejected as error:
            refused[each.provider, each.consumer_id] = error.message
    left = {(each.provider, each.consumer_id, each.code) for each in _findings(here)}
    return [_outcome(each, refused, left) for each in findings]


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
    healable = sum(bool(each["healable"]) for each in rows)
    return f"nothing is changed; --apply would heal {healable} of {len(rows)}"
