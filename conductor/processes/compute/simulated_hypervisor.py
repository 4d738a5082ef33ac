"""The simulated hypervisor of one host, with the faults that the command line asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from conductor.processes.simulated_hosts import default_hardware, read_hardware
from models.errors import Rejected
from workers.actions.action_registry import VERBS
from workers.hypervisor.fault_injection import FaultProfile, FaultRates, InjectedFaults, seeded
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.inventory.traits import traits_of


def hypervisor_of(
    directory: Path,
    topology: Path | None,
    faults: Mapping[str, str],
    traits: Sequence[str],
) -> SimulatedHypervisor:
    """Return a hypervisor that keeps its guests in `directory`.

    Without a `topology` file its hardware is a default. Raises `Rejected` naming what is wrong.
    """
    hardware = read_hardware(topology) if topology else default_hardware()
    hardware = replace(hardware, traits=traits_of([*hardware.traits, *traits]))
    return SimulatedHypervisor(hardware, directory, _injected_faults(faults))


def _injected_faults(given: Mapping[str, str]) -> InjectedFaults:
    """Return how the hypervisor behaves; raise `Rejected` naming the fault that is wrong.

    `NAME=VALUE` is about every verb, `VERB.NAME=VALUE` about one, on top of that.
    """
    seed = given.get("seed")
    faults = {name: text for name, text in given.items() if name != "seed"}
    for name in faults:
        _refuse_unknown(name)
    default = FaultRates(**_numbers(faults, ""))
    verbs = {
        verb: replace(default, **_numbers(faults, f"{verb}."))
        for verb in VERBS
        if any(name.startswith(f"{verb}.") for name in faults)
    }
    profile = FaultProfile(default, verbs)
    return seeded(profile, None if seed is None else int(_number("seed", seed)))


def _refuse_unknown(name: str) -> None:
    known = [field.name for field in fields(FaultRates)]
    verb, dot, fault = name.rpartition(".")
    if fault in known and (not dot or verb in VERBS):
        return
    message = (
        f"habit is {name}: should be one of {', '.join([*known, 'seed'])}, "
        f"or with one of {', '.join(VERBS)} and a dot before it"
    )
    raise Rejected("habit_unknown", message, key="habit")


def _numbers(faults: Mapping[str, str], prefix: str) -> dict[str, float]:
    """Return the faults of one verb, or (with an empty prefix) of all."""
    return {
        name.removeprefix(prefix): _number(name, text)
        for name, text in faults.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }


def _number(name: str, text: str) -> float:
    most = math.inf if name.endswith(("latency_s", "latency_max_s", "seed")) else 1.0
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most or math.isinf(number):
        rule = "a number from 0 to 1" if most == 1.0 else "a number, 0 or more"
        raise Rejected("habit_invalid", f"habit {name} is {text}: should be {rule}", key="habit")
    return number
