"""Ask the fitter: one JSON case a line in, one JSON answer a line out, no service needed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TextIO

from pydantic import ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from models.errors import Rejected
from models.hardware.accounting import claim, release
from models.hardware.constraints import guest_topology
from models.hardware.device_wishes import pci_numa_policy
from models.hardware.fitting import fit
from models.hardware.flavor import Flavor
from models.hardware.guest import GuestTopology, Misfit
from models.hardware.image import Image
from models.hardware.topology import HostTopology, Limits, PciRequest
from models.messages.base import Message, rejected
from models.messages.hardware import (
    flavor_of,
    guest_of,
    guest_to_json,
    host_of,
    host_use_to_json,
    image_of,
    limits_of,
    misfit_to_json,
    pci_requests_of,
    placement_of,
    placement_to_json,
)
from models.messages.hardware_shapes import (
    FlavorShape,
    GuestShape,
    HostShape,
    ImageShape,
    LimitsShape,
    PciRequestShape,
    PlacementShape,
)

Answer = dict[str, Any]


class Case(Message):
    """One question: does this guest fit this host? Its author's own notes beside it are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: str | int | float | None = None
    host: HostShape
    flavor: FlavorShape | None = None
    image: ImageShape | None = None
    guest: GuestShape | None = None
    limits: LimitsShape | None = None
    pack: bool = False
    pci_requests: list[PciRequestShape] | None = None
    release: PlacementShape | None = None


def run_fit(lines: Iterable[str], out: TextIO) -> None:
    """Answer every case line in order, each as soon as it is read; blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            out.write(_text(answer_case(line, number)) + "\n")
            out.flush()


def answer_case(line: str, number: int) -> Answer:
    """Return the contract's answer to one case line; a malformed one is answered, not raised."""
    try:
        case = _read(line)
        question = _Question(case)
    except Rejected as error:
        return {"id": _id_of(line), "error": {"line": number, "message": error.message}}
    try:
        return {"id": case.id, **question.answer()}
    except Rejected as error:
        complaint = {"code": error.code, "key": error.key, "message": error.message}
        return {"id": case.id, "rejected": complaint}


class _Question:
    """A case as values."""

    def __init__(self, case: Case) -> None:
        self._host = host_of(case.host)
        self._flavor = flavor_of(case.flavor) if case.flavor else None
        self._image = image_of(case.image) if case.image else Image("")
        self._ready = guest_of(case.guest) if case.guest else None
        self._limits: Limits | None = limits_of(case.limits) if case.limits else None
        self._pack = case.pack
        self._requests = pci_requests_of(case.pci_requests or ())
        self._returned = placement_of(case.release, self._host) if case.release else None

    def answer(self) -> Answer:
        """Return all of the answer but its id; raise `Rejected` where the case means nothing."""
        guest, requests = self._ready, self._requests
        if guest is None and self._flavor is not None:
            guest = guest_topology(self._flavor, self._image)
            requests = _with_policy(requests, self._flavor, self._image)
        host = release(self._host, self._returned) if self._returned else self._host
        return {"guest": None} if guest is None else self._placed(host, guest, requests)

    def _placed(
        self, host: HostTopology, guest: GuestTopology, requests: tuple[PciRequest, ...]
    ) -> Answer:
        answer: Answer = {"guest": guest_to_json(guest)}
        placement = fit(host, guest, self._limits, pack=self._pack, pci_requests=requests)
        if isinstance(placement, Misfit):
            return {**answer, "placement": None, "misfit": misfit_to_json(placement)}
        answer["placement"] = placement_to_json(placement)
        answer["host_after"] = host_use_to_json(claim(host, placement))
        return answer


def _with_policy(
    requests: tuple[PciRequest, ...], flavor: Flavor, image: Image
) -> tuple[PciRequest, ...]:
    """Return the requests, those without an affinity policy with that of flavor or image."""
    policy = pci_numa_policy(flavor, image)
    return tuple(
        request if request.numa_policy else replace(request, numa_policy=policy)
        for request in requests
    )


def _read(line: str) -> Case:
    try:
        case = Case.model_validate_json(line)
    except ValidationError as error:
        raise rejected(error) from None
    except ValueError as error:  # text that is no Unicode never reaches the parser
        raise Rejected("not_json", f"the line is not JSON: {error}") from None
    if case.flavor is None and case.guest is None:
        raise Rejected("field_missing", "flavor is missing, and there is no guest instead of it")
    return case


def _text(answer: Answer) -> str:
    try:
        return to_json(answer).decode()
    except PydanticSerializationError:  # an id that is no Unicode; the slower way escapes it
        return json.dumps(answer)


def _id_of(line: str) -> object:
    """Return the id of a case that could not be read, as far as there is one."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body.get("id") if isinstance(body, dict) else None
