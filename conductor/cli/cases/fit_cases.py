"""Ask the fitter: one JSON case a line in, one JSON answer a line out, no service needed."""

from __future__ import annotations

from dataclasses import replace

from conductor.cli.cases.json_lines import Answer, AnyCase, Line, Question, answered
from models.errors import Rejected
from models.hardware import Flavor, GuestTopology, HostTopology, Image, Limits, Misfit, PciRequest
from models.hardware.accounting import claim, release
from models.hardware.fitting.fit_guest import fit
from models.hardware.requirements.device_requirements import pci_numa_policy
from models.hardware.requirements.numa_constraints import guest_topology
from models.messages.hardware.hardware_json import (
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
from models.messages.hardware.hardware_shapes import (
    FlavorShape,
    GuestShape,
    HostShape,
    ImageShape,
    LimitsShape,
    PciRequestShapes,
    PlacementShape,
)


class Case(AnyCase):
    """One question: whether this guest fits this host."""

    host: HostShape
    flavor: FlavorShape | None = None
    image: ImageShape | None = None
    guest: GuestShape | None = None
    limits: LimitsShape | None = None
    pack: bool = False
    pci_requests: PciRequestShapes | None = None
    release: PlacementShape | None = None


def answer_fit(line: Line, number: int) -> Answer:
    """Return the contract's answer to one case line; a malformed one is answered, not raised."""
    return answered(line, number, Case, _question)


def _question(case: Case) -> Question:
    if case.flavor is None and case.guest is None:
        raise Rejected("field_missing", "flavor is missing, and there is no guest instead of it")
    return _Question(case).answer


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
        # Devices are no part of the contract's placement.
        answer["placement"] = placement_to_json(replace(placement, devices=()))
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
