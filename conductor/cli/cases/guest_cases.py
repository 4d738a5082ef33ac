"""Answer what a flavor and an image require together, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from conductor.cli.cases.json_lines import (
    Answer,
    AnyCase,
    Line,
    Question,
    answered,
    complaint,
    listed,
)
from models.errors import Rejected
from models.hardware import Image
from models.hardware.requirements.guest_requirements import GuestRequirements, all_requirements
from models.messages.hardware.hardware_json import flavor_of, guest_to_json, image_of
from models.messages.hardware.hardware_shapes import FlavorShape, ImageShape

_WRITTEN: Final[Mapping[str, Callable[[Any], object]]] = {
    "cpu_topology": asdict,
    "cpu_topology_preferred": asdict,
    "cpu_topology_maximum": asdict,
    "vtpm": asdict,
    "realtime_cpus": listed,
    "dedicated_cpus": listed,
    "vpmem": list,
    "numa": guest_to_json,
}
"""How the fields that are no JSON scalar are written."""


class GuestCase(AnyCase):
    """One question: what this flavor and this image require together."""

    flavor: FlavorShape
    image: ImageShape | None = None
    machine_type: str | None = None
    allow_threads: bool | None = None


def answer_guest(line: Line, number: int) -> Answer:
    """Return the answer to one line."""
    return answered(line, number, GuestCase, _question)


def _question(case: GuestCase) -> Question:
    requirements = GuestRequirements(
        flavor_of(case.flavor),
        image_of(case.image) if case.image else Image(""),
        case.machine_type or None,
        case.allow_threads is not False,
    )
    return lambda: _answer(requirements)


def _answer(requirements: GuestRequirements) -> Answer:
    """Return the fields that can be answered, and apart from them those that are refused."""
    guest: Answer = {}
    refused: Answer = {}
    for field, value in all_requirements(requirements).items():
        if isinstance(value, Rejected):
            refused[field] = complaint(value)
        elif value is None or field not in _WRITTEN:
            guest[field] = value
        else:
            guest[field] = _WRITTEN[field](value)
    return {"guest": guest, "rejected": refused} if refused else {"guest": guest}
