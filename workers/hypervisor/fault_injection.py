"""How a simulated hypervisor behaves: the fate of each call, chosen or drawn."""

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
    """What becomes of a call: how long it takes, and how it ends.

    `lost_before` and `lost_after` answer `Unreachable`, before or after the deed; `hang`
    ends only when the call is aborted; with `corrupt` the image came damaged.
    """

    latency_s: float = 0.0
    ending: Ending = "done"


InjectedFaults: TypeAlias = Callable[[Call], InjectedFault]


@dataclass(frozen=True, slots=True)
class Habit:
    """The chances of one verb, each from 0 to 1; latency is even between its bounds."""

    latency_s: float = 0.0
    latency_max_s: float | None = None
    refused: float = 0.0
    lost: float = 0.0
    hang: float = 0.0
    corrupt: float = 0.0


@dataclass(frozen=True, slots=True)
class Habits:
    """The habits of a hypervisor: `default`, and the verbs that differ from it."""

    default: Habit = Habit()
    verbs: Mapping[str, Habit] = field(default_factory=dict)


def always_done(_: Call) -> InjectedFault:
    """Return the fate of a hypervisor that is immediate and never fails."""
    return InjectedFault()


def seeded(habits: Habits, seed: int | None = None) -> InjectedFaults:
    """Return fates drawn by chance; with a seed the same call always meets the same fate.

    Each call has a generator of its own, so the order in which threads call decides nothing.
    """
    chance = random.Random(seed)
    base = chance.getrandbits(64)

    def injected_fault(call: Call) -> InjectedFault:
        draw = random.Random(f"{base}/{call.instance_id}/{call.verb}/{call.nth}")
        habit = habits.verbs.get(call.verb, habits.default)
        most = habit.latency_s if habit.latency_max_s is None else habit.latency_max_s
        return InjectedFault(draw.uniform(habit.latency_s, most), _ending(habit, draw))

    return injected_fault


def _ending(habit: Habit, draw: random.Random) -> Ending:
    roll = draw.random()
    if roll < habit.refused:
        return "refused"
    if roll < habit.refused + habit.hang:
        return "hang"
    if roll < habit.refused + habit.hang + habit.lost:
        return draw.choice(("lost_before", "lost_after"))
    if roll < habit.refused + habit.hang + habit.lost + habit.corrupt:
        return "corrupt"
    return "done"
