"""Fault injection: what a simulated hypervisor does with each call, chosen or drawn by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from models.ids import InstanceId

Ending = Literal["done", "refused", "lost_before", "lost_after", "hang", "corrupt"]


@dataclass(frozen=True, slots=True)
class Call:
    """The `nth` call (from 0) of a verb for an instance since the simulation was opened."""

    instance_id: InstanceId
    verb: str
    nth: int


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """What is done to a call: how long it takes, and how it ends.

    `lost_before` and `lost_after` answer `Unreachable`, before or after the effect; `hang`
    ends only when the call is aborted; with `corrupt` the image came damaged.
    """

    latency_s: float = 0.0
    ending: Ending = "done"


InjectedFaults: TypeAlias = Callable[[Call], InjectedFault]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The probabilities of one verb, each from 0 to 1; latency is uniform between its bounds."""

    latency_s: float = 0.0
    latency_max_s: float | None = None
    refused: float = 0.0
    lost: float = 0.0
    hang: float = 0.0
    corrupt: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """The fault rates of a hypervisor: `default`, and the verbs that differ from it."""

    default: FaultRates = FaultRates()
    verbs: Mapping[str, FaultRates] = field(default_factory=dict)


def always_done(_: Call) -> InjectedFault:
    """Inject no fault: every call is immediate and done."""
    return InjectedFault()


def seeded(profile: FaultProfile, seed: int | None = None) -> InjectedFaults:
    """Return faults drawn by chance; with a seed the same call always gets the same fault.

    Each call has a generator of its own, so the order in which threads call decides nothing.
    """
    chance = random.Random(seed)
    base = chance.getrandbits(64)

    def draw_fault(call: Call) -> InjectedFault:
        draw = random.Random(f"{base}/{call.instance_id}/{call.verb}/{call.nth}")
        rates = profile.verbs.get(call.verb, profile.default)
        most = rates.latency_s if rates.latency_max_s is None else rates.latency_max_s
        return InjectedFault(draw.uniform(rates.latency_s, most), _ending(rates, draw))

    return draw_fault


def _ending(rates: FaultRates, draw: random.Random) -> Ending:
    roll = draw.random()
    if roll < rates.refused:
        return "refused"
    if roll < rates.refused + rates.hang:
        return "hang"
    if roll < rates.refused + rates.hang + rates.lost:
        return draw.choice(("lost_before", "lost_after"))
    if roll < rates.refused + rates.hang + rates.lost + rates.corrupt:
        return "corrupt"
    return "done"
