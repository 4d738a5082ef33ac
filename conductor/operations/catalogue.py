"""Define or remove a flavor, image, aggregate, zone, server group or quota: one step each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from conductor.operations.definition import NewOperation, Operation, Outcome
from conductor.store.ports import UnitOfWork
from conductor.store.records import CatalogueEntry, Json
from models.errors import Rejected
from models.messages.base import parse
from models.messages.catalogue import CATALOGUE, AggregateBody, ZoneBody
from models.messages.requests import DefineEntry, RemoveEntry


@dataclass(frozen=True, slots=True)
class Entry:
    """Which entry of the catalogue, and what it shall say."""

    kind: str
    name: str
    body: dict[str, object]


define_entry = Operation("define_entry", Entry)
remove_entry = Operation("remove_entry", Entry)


@define_entry.accept
def check_new(new: NewOperation, uow: UnitOfWork) -> Entry:
    """Check the body by its kind; names are unique, quotas may be set again."""
    request = cast(DefineEntry, new.request)
    body = parse(CATALOGUE[request.entry], request.body)
    if isinstance(body, AggregateBody | ZoneBody):
        _hosts_exist(body.hosts, uow)
    name = str(body.to_json().get("id") or body.to_json()["name"])
    if request.entry != "quota" and uow.catalogue.get(request.entry, name) is not None:
        message = f"name is {name}: this {request.entry} exists already"
        raise Rejected("entry_exists", message, key="name")
    return Entry(request.entry, name, body.to_json())


@define_entry.step
def write(entry: Entry, uow: UnitOfWork) -> Outcome[Entry]:
    """Write it; instances keep the copies that they were built from."""
    uow.catalogue.put(CatalogueEntry(entry.kind, entry.name, entry.body, uow.now))
    return entry


@remove_entry.accept
def check_known(new: NewOperation, uow: UnitOfWork) -> Entry:
    """Only what exists can be removed."""
    request = cast(RemoveEntry, new.request)
    if uow.catalogue.get(request.entry, request.name) is None:
        message = f"name is {request.name}: no such {request.entry}"
        raise Rejected("entry_unknown", message, key="name")
    return Entry(request.entry, request.name, {})


@remove_entry.step
def remove(entry: Entry, uow: UnitOfWork) -> Outcome[Entry]:
    """Remove it; a second removal finds nothing and is content."""
    uow.catalogue.drop(entry.kind, entry.name)
    return entry


def _hosts_exist(hosts: tuple[str, ...], uow: UnitOfWork) -> None:
    for host in hosts:
        if uow.hosts.get(host) is None:
            raise Rejected("host_unknown", f"hosts is {host}: no such host", key="hosts")


@define_entry.result
def defined(entry: Entry) -> Json:
    """Return which entry it was."""
    return {"entry": entry.kind, "name": entry.name}


@remove_entry.result
def removed(entry: Entry) -> Json:
    """Return which entry it was."""
    return {"entry": entry.kind, "name": entry.name}
