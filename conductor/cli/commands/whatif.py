"""What-if analysis: where a flavor would go, who would have to move, how many more fit."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.fleet_inspection import FleetInspection
from conductor.cli.inspected_requests import InstanceRequirements
from conductor.cli.rendering.output import Output, show_one
from conductor.cli.rendering.text_tables import key, table_of
from conductor.processes.database_access import open_database
from conductor.scheduling.analysis.explanation import history_of
from conductor.scheduling.analysis.fleet_capacity import Capacity, RemainingCapacity
from conductor.scheduling.analysis.host_losses import Loss, after_losses
from conductor.scheduling.analysis.what_if import Search, WhatIf
from conductor.scheduling.fleet.filter_verdicts import sentence
from conductor.scheduling.host_selection import NoHost, Selection
from models.json_types import JsonDict

NO: Final = 3
_MOST_SHOWN: Final = 20
_LARGEST: Final = 10

Flavor = Annotated[str, typer.Option(help="The flavor's name.")]
Image = Annotated[str | None, typer.Option(help="The image's id or name.")]
Zone = Annotated[str | None, typer.Option(help="Only in this availability zone.")]
Project = Annotated[str, typer.Option(help="The project that would own it.")]


def add_to(app: typer.Typer) -> None:
    """Add `what-if` and `capacity`."""
    app.command("what-if")(what_if)
    app.command("capacity")(capacity)


def what_if(
    flavor: Flavor,
    image: Image = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many: all or none.")] = 1,
    moves: Annotated[
        bool, typer.Option("--moves", help="If not: which one or two instances would have to move.")
    ] = False,
    zone: Zone = None,
    host: Annotated[str | None, typer.Option(help="On this host and nowhere else.")] = None,
    group: Annotated[str | None, typer.Option(help="A member of this server group.")] = None,
    project: Project = "default",
    output: Output = None,
) -> None:
    """Say where instances would go and why, or why nowhere; nothing is claimed."""
    with open_database() as here, here.store.read() as uow:
        inspection = FleetInspection(uow, here.settings)
        spec = inspection.request_spec_of(
            InstanceRequirements(flavor, image, project, zone, host, group)
        )
        analysis = WhatIf(inspection.fleet, inspection.settings, inspection.now)
        selections, refused = analysis.placed(spec, count)
        search = None
        if refused is not None and moves:
            search = analysis.moves_that_help(spec, inspection.movable_on, selections)
    row = _answer(selections, refused, search, count)
    show_one(row, output, lambda: _picture(row))
    if refused is not None:
        raise typer.Exit(NO)


def capacity(
    flavor: Flavor,
    image: Image = None,
    survive: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Keep headroom for the loss of so many hosts."),
    ] = None,
    zone: Zone = None,
    project: Project = "default",
    output: Output = None,
) -> None:
    """Say how many more instances of a flavor fit, also when hosts may be lost."""
    with open_database() as here, here.store.read() as uow:
        inspection = FleetInspection(uow, here.settings)
        spec = inspection.request_spec_of(InstanceRequirements(flavor, image, project, zone))
        fleet_capacity = Capacity(spec, inspection.fleet, inspection.settings)
        losses = (
            None if survive is None else after_losses(fleet_capacity, survive, inspection.guests_of)
        )
        row = _capacity(flavor, fleet_capacity.remaining, losses)
    show_one(row, output, lambda: _capacity_picture(row))


def _answer(
    selections: list[Selection], refused: NoHost | None, search: Search | None, count: int
) -> JsonDict:
    row: dict[str, Any] = {
        "answer": _line(selections, refused, search, count),
        "fits": refused is None,
        "count": count,
        "placed": [_placed(selection) for selection in selections],
        "refused": None if refused is None else {"message": str(refused), **refused.to_json()},
    }
    if search is not None:
        found = None if search.found is None else search.found.to_json()
        row["moves"] = {"found": found, "hosts": search.hosts, "tried": search.trials}
    return row


def _line(
    selections: list[Selection], refused: NoHost | None, search: Search | None, count: int
) -> str:
    if refused is None:
        first = selections[0]
        if count == 1:
            return history_of(first.to_json(), first.host.name)[0]
        hosts = {selection.host.name for selection in selections}
        return f"all {count:,} fit, on {len(hosts):,} hosts, the first on {first.host.name}"
    some = f"{len(selections):,} of {count:,} fit: " if count > 1 else ""
    line = f"{some}{refused}"
    if search is None:
        return line
    if search.found is None:
        return f"{line}; no one or two moves help ({search.trials:,} tried)"
    return f"{line}; {search.found}"


def _placed(selection: Selection) -> JsonDict:
    detail = selection.to_json()
    placement = selection.placement
    return {
        "host": selection.host.name,
        "cells": [] if placement is None else [cell.host_cell for cell in placement.cells],
        "story": list(history_of(detail, selection.host.name)),
        **detail,
    }


def _picture(row: JsonDict) -> RenderableType:
    parts: list[RenderableType] = [Text(row["answer"], style="bold")]
    for placed in row["placed"][:_MOST_SHOWN]:
        parts += [Text(f"  {line}") for line in placed["story"]]
    return Group(*parts)


def _capacity(flavor: str, remaining: RemainingCapacity, losses: list[Loss] | None) -> JsonDict:
    largest = sorted(remaining.by_host.items(), key=lambda pair: (-pair[1], pair[0]))[:_LARGEST]
    row: dict[str, Any] = {
        "answer": _capacity_line(flavor, remaining, losses),
        "flavor": flavor,
        "more": remaining.total,
        "hosts": remaining.hosts,
        "hosts_with_room": len(remaining.by_host),
        "largest": [{"host": name, "more": count} for name, count in largest],
        "checks": [removal.to_json() for removal in remaining.removals],
    }
    if losses is not None:
        row["survive"] = {
            "hosts": len(losses[0].lost),
            "more": 0 if losses[0].homeless else losses[0].more,
            "worst": [
                {"lost": list(loss.lost), "more": loss.more, "homeless": list(loss.homeless)}
                for loss in losses
            ],
        }
    return row


def _capacity_line(flavor: str, remaining: RemainingCapacity, losses: list[Loss] | None) -> str:
    hosts = f"{len(remaining.by_host):,} of {remaining.hosts:,} hosts"
    line = f"{remaining.total:,} more {flavor} fit, on {hosts}"
    if not remaining.total:
        line = f"no more {flavor} fits: {sentence(remaining.hosts, remaining.removals)}"
    if not losses:
        return line
    worst = losses[0]
    names = ", ".join(worst.lost[:3]) + (", …" if len(worst.lost) > 3 else "")
    if worst.homeless:
        who = ", ".join(worst.homeless[:3])
        return f"{line}; the loss of {names} would leave {who} without a place already"
    lost = f"{len(worst.lost)} (worst: {names})"
    return f"{line}; {worst.more:,} keeping headroom for the loss of {lost}"


def _capacity_picture(row: JsonDict) -> RenderableType:
    parts: list[RenderableType] = [Text(row["answer"], style="bold")]
    if row["largest"]:
        parts += ["", table_of(row["largest"], (("host", key("host")), ("more", key("more"))))]
    if row.get("survive"):
        parts += ["", table_of(row["survive"]["worst"], _LOSS_COLUMNS)]
    return Group(*parts)


_LOSS_COLUMNS: Final = (
    ("lost", key("lost")),
    ("more", key("more")),
    ("homeless", key("homeless")),
)
