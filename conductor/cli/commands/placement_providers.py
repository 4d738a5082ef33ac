"""Resource providers: list and show them, add children under hosts, share some, delete."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from conductor.cli.commands.placement_candidates import candidates
from conductor.cli.commands.provider_arguments import aggregate_uuid, inventories_of
from conductor.cli.rendering.output import Output, show_all, show_one
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.requests.request_sending import run_transaction
from conductor.exit_codes import say
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import ProviderQuery
from conductor.placement.providers import over_committed
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import Provider, UnitOfWork
from models.errors import Rejected
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

_COLUMNS: Final = (
    ("name", lambda row: "  " * row["depth"] + row["name"]),
    ("generation", key("generation")),
    ("inventories", key("use")),
    ("traits", key("traits")),
    ("aggregates", key("aggregates")),
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
    """Show one provider, with the allocations of its consumers."""
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
    """Create a provider: child of a host, or sharing one (trait MISC_SHARES_VIA_AGGREGATE)."""

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
        run_transaction(here, work)
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
            message = (
                f"{provider} is a host, which reports these itself: add a child provider to it"
            )
            raise Rejected("host_is_provider", message, key="provider")
        _set(placement, found, inventory, trait, aggregate)

    with open_database() as here:
        run_transaction(here, work)
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
        run_transaction(here, work)
    say(f"deleted: {provider}")


def _set(
    placement: StorePlacement,
    provider: Provider,
    inventory: list[str] | None,
    trait: list[str] | None,
    aggregate: list[str] | None,
) -> None:
    """Write what is not None, custom classes and traits made on the way."""
    if inventory is not None:
        inventories = inventories_of(inventory)
        placement.ensure_classes(_custom(inventories))
        provider = placement.set_inventories(provider.id, inventories, provider.generation)
    if trait is not None:
        placement.ensure_traits(_custom(trait))
        provider = placement.set_traits(provider.id, trait, provider.generation)
    if aggregate is not None:
        placement.set_aggregates(provider.id, map(aggregate_uuid, aggregate), provider.generation)


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
    amounts = {consumer: dict(resources) for consumer, resources in consumers.items()}
    return {**_row(found), "over_committed": dict(over_committed(found)), "consumers": amounts}


def _as_trees(found: Iterable[Provider]) -> list[dict[str, Any]]:
    """Return rows with every child behind its parent, deeper by one."""
    below: dict[str | None, list[Provider]] = {}
    known = {provider.id: provider for provider in found}
    for provider in known.values():
        parent = provider.parent_id if provider.parent_id in known else None
        below.setdefault(parent, []).append(provider)
    rows: list[dict[str, Any]] = []

    def walk(parent: str | None, depth: int) -> None:
        for child in sorted(below.get(parent, ()), key=lambda provider: provider.name):
            row = _row(child)
            rows.append({**row, "depth": depth, "use": _use(row)})
            walk(child.id, depth + 1)

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


def _use(row: JsonDict) -> str:
    return "  ".join(
        f"{name} {inventory['used']}/{inventory['total']}"
        for name, inventory in row["inventories"].items()
    )
