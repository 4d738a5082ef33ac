"""From the XML of a domain back to the definition of its guest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, tostring

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from models.errors import Rejected
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from models.units import KIB_PER_MIB
from workers.hypervisor.libvirt.domain_xml.writing import (
    COPY_NAMESPACE,
    DEFINITION,
    NAMESPACE,
    WAITING,
    placement_of,
)

_NUMBER: Final = re.compile("[0-9]{1,15}")
_UNITS_KIB: Final = {"KiB": 1, "MiB": KIB_PER_MIB}
"""libvirt writes the first whatever it was given."""
_OF_THE_HOST = ("cputune", "numatune", "metadata")
"""What of a running guest its new host decides: CPUs, NUMA nodes, and what is said of it."""


def is_ours(xml: str) -> bool:
    """Say whether a domain was made by us; one that cannot be parsed was not."""
    try:
        return _definition_in(_parsed(xml)) is not None
    except Rejected:
        return False


def definition_in(xml: str) -> GuestDefinition:
    """Return the definition that a domain of ours carries.

    Raises `Rejected`: `domain_unreadable`, or `domain_foreign` for a domain that is none of ours.
    """
    text = _definition_in(_parsed(xml))
    if text is None:
        raise Rejected("domain_foreign", "it has no definition of ours")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Rejected("domain_unreadable", "its definition is no JSON") from error
    if not isinstance(body, dict):
        raise Rejected("domain_unreadable", "its definition is no JSON object")
    return parse(GuestDefinition, body)


def observed(xml: str) -> GuestDefinition:
    """Return the definition of a domain with the sizes and pins that it really has.

    Somebody may have changed them by hand: the host's accounts follow what is. Raises `Rejected`
    for whatever else somebody may have made of it.
    """
    domain = _parsed(xml)
    guest = definition_in(xml)
    changes: dict[str, Any] = {
        "vcpus": _number_in(domain, "vcpu"),
        "memory_mib": _number_in(domain, "memory") * _unit_kib(domain) // KIB_PER_MIB,
    }
    if placement_of(guest) is not None and guest.placement is not None:
        changes["placement"] = _as_pinned(guest.placement, dict(_pins_in(domain)))
    return guest.model_copy(update=changes)


def is_waiting(xml: str) -> bool:
    """Say whether a domain waits for the memory of a live migration."""
    found = _ours(_parsed(xml))
    return found is not None and found.get(WAITING) == "yes"


def copied_to(xml: str) -> str | None:
    """Return the host to which a domain was being copied, None where to none."""
    found = _parsed(xml).find(f"metadata/{{{COPY_NAMESPACE}}}copying")
    return None if found is None else found.get("to")


def moved_xml(source: str, target: str) -> str:
    """Return the XML with which a running guest goes on at its target.

    All that the guest can see is as in `source`, addresses of devices included; CPUs, NUMA nodes
    and paths are those of `target`. Raises `Rejected` (`domain_unreadable`, `domain_differs`).
    """
    moved, there = _parsed(source), _parsed(target)
    for tag in _OF_THE_HOST:
        _replace(moved, there, tag)
    _take_paths(moved, there, "devices/disk", "source", "target", "dev")
    _take_paths(moved, there, "devices/serial", "log", "target", "port")
    _take_paths(moved, there, "devices/console", "log", "target", "port")
    return tostring(moved, encoding="unicode")


def _replace(moved: Element, there: Element, tag: str) -> None:
    old, new = moved.find(tag), there.find(tag)
    position = list(moved).index(old) if old is not None else len(moved)
    if old is not None:
        moved.remove(old)
    if new is not None:
        moved.insert(position, new)


def _take_paths(moved: Element, there: Element, tag: str, what: str, name: str, key: str) -> None:
    """Give each device of a kind the file that the same device of the target has."""
    files = {_key(device, name, key): device.find(what) for device in there.findall(tag)}
    drivers = {_key(device, name, key): device.find("driver") for device in there.findall(tag)}
    for device in moved.findall(tag):
        old, new = device.find(what), files.get(_key(device, name, key))
        if old is None or new is None:
            continue
        for attribute in list(old.attrib):
            if attribute not in new.attrib:
                del old.attrib[attribute]
        old.attrib.update(new.attrib)
        for inner in list(old):
            old.remove(inner)
        driver, new_driver = device.find("driver"), drivers.get(_key(device, name, key))
        if driver is not None and new_driver is not None:
            driver.set("type", new_driver.get("type", ""))
        backing = device.find("backingStore")
        if backing is not None:
            device.remove(backing)


def _key(device: Element, name: str, key: str) -> str | None:
    found = device.find(name)
    return None if found is None else found.get(key)


def _pins_in(domain: Element) -> Iterator[tuple[str, int]]:
    """Yield each vCPU that is bound to one CPU, and that CPU."""
    for pin in domain.findall("cputune/vcpupin"):
        cpus = pin.get("cpuset", "")
        if _NUMBER.fullmatch(cpus):
            yield pin.get("vcpu", ""), int(cpus)


def _as_pinned(placement: Mapping[str, Any], pins: Mapping[str, int]) -> dict[str, Any]:
    cells = [
        {
            **cell,
            "cpu_pinning": {
                vcpu: pins.get(vcpu, cpu) for vcpu, cpu in cell.get("cpu_pinning", {}).items()
            },
        }
        for cell in placement.get("cells", ())
    ]
    return {**placement, "cells": cells}


def _number_in(domain: Element, tag: str) -> int:
    text = (domain.findtext(tag) or "").strip()
    if not _NUMBER.fullmatch(text):
        raise Rejected("domain_unreadable", f"its {tag} is {text[:40]!r}: should be a number")
    return int(text)


def _unit_kib(domain: Element) -> int:
    memory = domain.find("memory")
    unit = "KiB" if memory is None else memory.get("unit", "KiB")
    if unit not in _UNITS_KIB:
        raise Rejected("domain_unreadable", f"its memory is in {unit[:20]!r}: in KiB or MiB")
    return _UNITS_KIB[unit]


def _ours(domain: Element) -> Element | None:
    return domain.find(f"metadata/{{{NAMESPACE}}}{DEFINITION}")


def _definition_in(domain: Element) -> str | None:
    found = _ours(domain)
    return None if found is None else found.text


def _parsed(xml: str) -> Element:
    try:
        domain: Element = fromstring(xml)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise Rejected("domain_unreadable", "its XML cannot be parsed") from error
    return domain
