"""Allocation candidates: which providers could serve a request together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

import typer

from conductor.cli.arguments import pairs
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.exit_codes import say
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.request_groups import CandidateRequest, TraitRule
from conductor.placement.resources import OVERRIDE
from conductor.processes.database_access import open_database
from conductor.scheduling.request.instance_shape import shape_of
from models.errors import Rejected
from models.hardware import Flavor, FrozenMap, Image

# As the request groups of flavors are named; all other extra specs would be ignored.
_GROUPED: Final = re.compile(r"(resources|trait)(\d{1,9}|_[A-Za-z0-9_-]{1,64})?:\S+|group_policy")
_COLUMNS: Final = (
    ("root", key("root")),
    ("allocations", key("allocations")),
    ("groups", key("groups")),
)


def candidates(
    requested: Annotated[
        list[str],
        typer.Option(
            "--ask",
            metavar="resources[N]:CLASS=AMOUNT",
            help="As in extra specs; also trait[N]:NAME=required, group_policy=isolate.",
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 10,
    output: Output = None,
) -> None:
    """List ways to serve a request from one tree of providers; exit 3 where there is none."""
    request = _request(pairs(requested, "ask"))
    with open_database() as here, here.store.read() as uow:
        found = StorePlacement(uow, ProviderIndex()).candidates(request, limit)
    names = {name: provider.name for name, provider in found.providers.items()}
    rows = [
        {
            "root": names.get(candidate.root_id, candidate.root_id),
            "allocations": {names[at]: dict(took) for at, took in candidate.allocations.items()},
            "groups": {
                suffix: [names[at] for at in served]
                for suffix, served in candidate.mappings.items()
            },
        }
        for candidate in found.found
    ]
    if not rows:
        say("no providers can serve this together: placement list shows what each has left")
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))
    raise typer.Exit(0 if rows else 3)


def _request(specs: Mapping[str, str]) -> CandidateRequest:
    """Return the candidates request of extra specs alone, without CPUs and memory of a flavor."""
    for name in specs:
        if not _GROUPED.fullmatch(name):
            rule = "should be resources[N]:CLASS, trait[N]:NAME or group_policy"
            raise Rejected("ask_invalid", f"ask is {name}: {rule}", key="ask")
    shape = shape_of(Flavor("ask", 1, 1, extra_specs=specs), Image(id=""))
    first, *others = shape.request.groups
    own = {name: amount for name, amount in first.resources.items() if f"{OVERRIDE}{name}" in specs}
    if not own and not others:
        raise Rejected("ask_invalid", "ask names no amount: at least one resources[N]", key="ask")
    traits = TraitRule(shape.host_requirements.required, (), shape.host_requirements.forbidden)
    groups = (replace(first, resources=FrozenMap(own)), *others) if own else tuple(others)
    return replace(shape.request, groups=groups, root_traits=traits)
