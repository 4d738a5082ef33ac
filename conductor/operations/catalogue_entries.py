"""Define or remove a flavor, image, aggregate, zone, server group or quota: one step each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from conductor.operations.engine.definition import NewOperation, Operation, Outcome
from conductor.operations.steps.build_request import flavor_of
from conductor.operations.steps.image_sources import (
    refuse_needed_image,
    refuse_other_content,
    refuse_source,
)
from conductor.operations.steps.unsupported_fields import (
    refuse_flavor_keys,
    refuse_image_keys,
    refuse_metadata,
)
from conductor.placement.resources import is_class
from conductor.store import CatalogueEntry, UnitOfWork
from models.errors import Rejected
from models.hardware import Image
from models.hardware.requirements.standalone import refuse_flavor, refuse_image
from models.json_types import Json
from models.lifecycle import InstanceState
from models.messages.base import Message, parse
from models.messages.catalogue import (
    BUSY_LIMIT,
    CATALOGUE,
    COUNT_LIMIT,
    OWN_MULTIPLIER,
    AggregateBody,
    FlavorBody,
    ImageBody,
    QuotaBody,
    ServerGroupBody,
    ZoneBody,
)
from models.messages.requests import DefineEntry, RemoveEntry

_SHOWN = 10
_NUMBER = re.compile(r"-?\d{1,15}(\.\d+)?")


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
    """Check the body by its kind; names are unique, quotas may be set again.

    A flavor or image that every build would refuse is refused here already.
    """
    request = cast(DefineEntry, new.request)
    body = parse(CATALOGUE[request.entry], request.body)
    _refuse_senseless(body, uow)
    name = str(body.to_json().get("id") or body.to_json()["name"])
    if request.entry != "quota" and uow.catalogue.get(request.entry, name) is not None:
        message = f"name is {name}: this {request.entry} exists already"
        raise Rejected("entry_exists", message, key="name")
    return Entry(request.entry, name, body.to_json())


def _refuse_senseless(body: Message, uow: UnitOfWork) -> None:
    """Refuse what could never have an effect, or only the effect that all builds are refused."""
    match body:
        case AggregateBody() | ZoneBody():
            _hosts_exist(body.hosts, uow)
            if isinstance(body, AggregateBody):
                _numbers_are_numbers(body.metadata)
                refuse_metadata(body.metadata)
        case FlavorBody():
            flavor = flavor_of(body, uow, "body")
            refuse_flavor_keys(flavor)
            refuse_flavor(flavor)
        case ImageBody():
            image = Image(body.id, body.name or "", body.properties)
            refuse_image_keys(image)
            refuse_image(image)
            refuse_source(body)
            refuse_other_content(body, uow)
        case QuotaBody():
            _classes_exist(body)
        case ServerGroupBody(max_server_per_host=int(most)) if not body.policy.endswith(
            "anti-affinity"
        ):
            rule = "should go with anti-affinity: the others have no most"
            message = f"max_server_per_host is {most}: {rule}"
            raise Rejected("group_invalid", message, key="max_server_per_host")
        case _:
            pass


def _numbers_are_numbers(metadata: Mapping[str, str]) -> None:
    """Refuse metadata that limits or weighs hosts by what is no number: it would do nothing."""
    for key, value in metadata.items():
        if key in (COUNT_LIMIT, BUSY_LIMIT) and not value.isdecimal():
            rule = "should be a whole number"
        elif key.endswith(OWN_MULTIPLIER) and not _NUMBER.fullmatch(value):
            rule = "should be a number"
        else:
            continue
        raise Rejected("metadata_invalid", f"{key} is {value[:40]!r}: {rule}", key="metadata")


def _classes_exist(quota: QuotaBody) -> None:
    for limits in (quota, *quota.users.values()):
        for name in limits.classes:
            if not is_class(name):
                rule = "no size (instances, cores, memory_mb, disk_gb), standard or CUSTOM_ class"
                raise Rejected("class_unknown", f"classes is {name}: {rule}", key="classes")


@define_entry.step
def write(entry: Entry, uow: UnitOfWork) -> Outcome[Entry]:
    """Write it; instances keep the copies that they were built from."""
    uow.catalogue.put(CatalogueEntry(entry.kind, entry.name, entry.body, uow.now))
    return entry


@remove_entry.accept
def check_known(new: NewOperation, uow: UnitOfWork) -> Entry:
    """Only what exists can be removed, and no server group that has members."""
    request = cast(RemoveEntry, new.request)
    if uow.catalogue.lock(request.entry, request.name) is None:
        message = f"name is {request.name}: no such {request.entry}"
        raise Rejected("entry_unknown", message, key="name")
    _refuse_needed(request.entry, request.name, uow)
    return Entry(request.entry, request.name, {})


@remove_entry.step
def remove(entry: Entry, uow: UnitOfWork) -> Outcome[Entry]:
    """Remove it; a second removal finds nothing and is content."""
    _refuse_needed(entry.kind, entry.name, uow)
    uow.catalogue.drop(entry.kind, entry.name)
    return entry


def _refuse_needed(kind: str, name: str, uow: UnitOfWork) -> None:
    """Refuse to remove what instances still need."""
    if kind == "server_group":
        _refuse_members(name, uow)
    if kind == "image":
        refuse_needed_image(name, uow)


def _refuse_members(name: str, uow: UnitOfWork) -> None:
    """Refuse to remove a server group whose rule instances still follow."""
    living = [literal for literal in InstanceState if literal is not InstanceState.DELETED]
    members = uow.instances.where(group=name, state=living)
    if members:
        shown = ", ".join(member.id for member in members[:_SHOWN]) + (
            ", …" * (len(members) > _SHOWN)
        )
        many = "1 instance is" if len(members) == 1 else f"{len(members)} instances are"
        message = f"name is {name}: {many} in this server group ({shown})"
        raise Rejected("server_group_in_use", message, key="name")


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
