"""Look at resource providers, hang children under hosts, let some share, ask who could serve."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import pairs
from conductor.cli.rendering.output import Output, show_all, show_one
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.requests.request_sending import carrier_of
from conductor.exit_codes import say
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import ProviderQuery
from conductor.placement.providers import over_committed
from conductor.placement.request_groups import CandidateRequest, TraitRule
from conductor.placement.resources import MOST, OVERRIDE
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.scheduling.request.instance_shape import shape_of
from conductor.store import Inventory, Provider, UnitOfWork
from conductor.transactions import Transactions
from models.errors import Rejected
from models.hardware import Flavor, FrozenMap, Image
from models.json_types import JsonDict

Name = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name; a host's own name.")]
Inventories = Annotated[
    list[str] | None,
    typer.Option(
        "--inventory",
        metavar="CLASS=TOTAL[,reserved=N][,ratio=X][,min_unit=N][,max_unit=N][,step_size=N]",
        help="What it has; repeatable, and all that it has.",
    ),
]
Traits = Annotated[list[str] | None, typer.Option("--trait", help="Repeatable.")]
Aggregates = Annotated[
    list[str] | None, typer.Option("--aggregate", metavar="UUID", help="Repeatable.")
]

# As the request groups of flavors are named; all other extra specs would be ignored.
_ASK: Final = re.compile(r"(resources|trait)(\d{1,9}|_[A-Za-z0-9_-]{1,64})?:\S+|group_policy")

_COLUMNS: Final = (
    ("name", lambda row: "  " * row["depth"] + row["name"]),
    ("generation", key("generation")),
    ("inventories", key("room")),
    ("traits", key("traits")),
    ("aggregates", key("aggregates")),
)
_CANDIDATE_COLUMNS: Final = (
    ("root", key("root")),
    ("allocations", key("allocations")),
    ("groups", key("groups")),
)


def add_verbs(group: typer.Typer) -> None:
    """Add the verbs about providers."""
    group.command("list")(list_all)
    group.command("show")(show)
    group.command("create")(create)
    group.command("set")(change)
    group.command("delete")(delete)
    group.command("candidates")(candidates)


def list_all(
    in_tree: Annotated[str | None, typer.Option(help="Only the tree of this provider.")] = None,
    output: Output = None,
) -> None:
    """List providers, children under their parents; hosts are the roots of their trees."""
    with open_database() as here, here.store.read() as uow:
        placement = StorePlacement(uow)
        root = None if in_tree is None else _named(placement, in_tree).root_id
        found = placement.providers(ProviderQuery(in_tree=root))
    rows = _as_trees(found)
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(provider: Name, output: Output = None) -> None:
    """Show one provider, with who holds what of it."""
    with open_database() as here:
        row = _shown(here, provider)
    show_one(row, output, lambda: fields_of(row))


def create(
    provider: Name,
    parent: Annotated[str | None, typer.Option(help="A host, or another provider.")] = None,
    inventory: Inventories = None,
    trait: Traits = None,
    aggregate: Aggregates = None,
    output: Output = None,
) -> None:
    """Make a provider: a child of a host, or one for many (trait MISC_SHARES_VIA_AGGREGATE)."""

    def work(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        if placement.providers(ProviderQuery(name=provider)):
            message = f"name is {provider}: there is a provider of that name"
            raise Rejected("provider_name_taken", message, key="name")
        above = None if parent is None else _named(placement, parent).id
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"conductor:provider:{provider}"))
        made = placement.ensure_provider(identity, provider, above)
        _set(placement, made, inventory or [], trait or [], aggregate or [])

    with open_database() as here:
        Transactions(here.store, carrier_of(here)).run(work)
        row = _shown(here, provider)
    show_one(row, output, lambda: fields_of(row))


def change(
    provider: Name,
    inventory: Inventories = None,
    trait: Traits = None,
    aggregate: Aggregates = None,
    output: Output = None,
) -> None:
    """Replace what a provider has, its traits or its aggregates; what is not named stays."""

    def work(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        found = _named(placement, provider)
        if uow.hosts.get(found.name) is not None and (inventory or trait):
            message = f"{provider} is a host, which reports these itself: hang a child under it"
            raise Rejected("host_is_provider", message, key="provider")
        _set(placement, found, inventory, trait, aggregate)

    with open_database() as here:
        Transactions(here.store, carrier_of(here)).run(work)
        row = _shown(here, provider)
    for name, amount in row["over_committed"].items():
        say(f"{provider} is over-committed by {amount} {name}: it takes no new claims")
    show_one(row, output, lambda: fields_of(row))


def delete(provider: Name) -> None:
    """Delete a provider that nobody uses and that has no children."""

    def work(uow: UnitOfWork) -> None:
        placement = StorePlacement(uow)
        placement.delete_provider(_named(placement, provider).id)

    with open_database() as here:
        Transactions(here.store, carrier_of(here)).run(work)
    say(f"deleted: {provider}")


def candidates(
    ask: Annotated[
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
    request = _request(pairs(ask, "ask"))
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
    show_all(rows, output, lambda: table_of(rows, _CANDIDATE_COLUMNS))
    raise typer.Exit(0 if rows else 3)


def _request(specs: Mapping[str, str]) -> CandidateRequest:
    """Return what extra specs alone ask for, without the CPUs and the memory of any flavor."""
    for name in specs:
        if not _ASK.fullmatch(name):
            rule = "should be resources[N]:CLASS, trait[N]:NAME or group_policy"
            raise Rejected("ask_invalid", f"ask is {name}: {rule}", key="ask")
    shape = shape_of(Flavor("ask", 1, 1, extra_specs=specs), Image(id=""))
    first, *groups = shape.request.groups
    own = {name: amount for name, amount in first.resources.items() if f"{OVERRIDE}{name}" in specs}
    if not own and not groups:
        raise Rejected("ask_invalid", "ask names no amount: at least one resources[N]", key="ask")
    traits = TraitRule(shape.host_requirements.required, (), shape.host_requirements.forbidden)
    asked = (replace(first, resources=FrozenMap(own)), *groups) if own else tuple(groups)
    return replace(shape.request, groups=asked, root_traits=traits)


def _set(
    placement: StorePlacement,
    provider: Provider,
    inventory: list[str] | None,
    trait: list[str] | None,
    aggregate: list[str] | None,
) -> None:
    """Write what is not None, custom classes and traits made on the way."""
    if inventory is not None:
        wanted = _inventories(inventory)
        placement.ensure_classes(_custom(wanted))
        provider = placement.set_inventories(provider.id, wanted, provider.generation)
    if trait is not None:
        placement.ensure_traits(_custom(trait))
        provider = placement.set_traits(provider.id, trait, provider.generation)
    if aggregate is not None:
        placement.set_aggregates(provider.id, map(_uuid, aggregate), provider.generation)


def _inventories(given: Iterable[str]) -> dict[str, Inventory]:
    return {name: _inventory(name, text) for name, text in pairs(given, "inventory").items()}


def _inventory(name: str, text: str) -> Inventory:
    total, *rest = text.split(",")
    found: dict[str, Any] = {"total": _number(name, "total", total)}
    for item in rest:
        what, equals, value = item.partition("=")
        if not equals or what not in ("reserved", "ratio", "min_unit", "max_unit", "step_size"):
            rule = "should be reserved, ratio, min_unit, max_unit or step_size with =VALUE"
            raise Rejected("inventory_invalid", f"inventory of {name} says {item}: {rule}")
        found[what] = _ratio(name, value) if what == "ratio" else _number(name, what, value)
    return Inventory(**found)


def _number(name: str, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        rule = f"should be a whole number from 0 to {MOST}"
        message = f"inventory of {name}: {what} is {text[:40]!r}: {rule}"
        raise Rejected("inventory_invalid", message, key="inventory")
    return int(text)


def _ratio(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"inventory of {name}: ratio is {text[:40]!r}: should be a number"
        raise Rejected("inventory_invalid", message, key="inventory") from None


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        message = f"aggregate is {text[:40]!r}: should be a UUID"
        raise Rejected("aggregate_invalid", message, key="aggregate") from None


def _custom(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("CUSTOM_")]


def _named(placement: StorePlacement, name: str) -> Provider:
    found = placement.providers(ProviderQuery(name=name))
    if not found:
        raise Rejected("provider_unknown", f"provider is {name}: no such provider", key="provider")
    return found[0]


def _shown(here: DatabaseAccess, name: str) -> dict[str, Any]:
    with here.store.read() as uow:
        placement = StorePlacement(uow)
        found = _named(placement, name)
        consumers = placement.consumers_of(found.id)
    held = {consumer: dict(resources) for consumer, resources in consumers.items()}
    return {**_row(found), "over_committed": dict(over_committed(found)), "consumers": held}


def _as_trees(found: Iterable[Provider]) -> list[dict[str, Any]]:
    """Return rows with every child behind its parent, deeper by one."""
    below: dict[str | None, list[Provider]] = {}
    known = {item.id: item for item in found}
    for known_name in known.values():
        parent = known_name.parent_id if known_name.parent_id in known else None
        below.setdefault(parent, []).append(known_name)
    rows: list[dict[str, Any]] = []

    def walk(parent: str | None, depth: int) -> None:
        for item in sorted(below.get(parent, ()), key=lambda provider: provider.name):
            row = _row(item)
            rows.append({**row, "depth": depth, "room": _room(row)})
            walk(item.id, depth + 1)

    walk(None, 0)
    return rows


def _row(provider: Provider) -> dict[str, Any]:
    return {
        "id": provider.id,
        "name": provider.name,
        "parent_id": provider.parent_id,
        "root_id": provider.root_id,
        "generation": provider.generation,
        "inventories": {
            name: {**asdict(inventory), "used": provider.used.get(name, 0)}
            for name, inventory in sorted(provider.inventories.items())
        },
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _room(row: JsonDict) -> str:
    return "  ".join(
        f"{name} {item['used']}/{item['total']}" for name, item in row["inventories"].items()
    )
