"""The hypervisor port: what an agent asks of whatever runs the guests of its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from models.hardware.topology import HostTopology
from models.ids import InstanceId
from models.messages.letters import SpawnArgs

Power = Literal["running", "shutdown", "nostate"]

DEFAULT_DISK_GB = 1_000
"""Disk of a host whose description names none (CONTRACT §6)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a host is made of, whoever uses it; `topology` may carry use, which nobody reads."""

    topology: HostTopology
    disk_gb: int = DEFAULT_DISK_GB
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuestDomain:
    """One guest as the hypervisor has it; `spec` is None where it cannot be read, `fault` says why.

    A guest nobody asked us for has a spec too, as far as the hypervisor knows it.
    """

    instance_id: InstanceId
    power: Power
    spec: SpawnArgs | None
    fault: str = ""


class Hypervisor(Protocol):
    """Runs guests. Every action may be repeated: what is already so stays so, without an error.

    Actions raise `HostRefused` when the hypervisor will not do it and nothing changed,
    `Unreachable` when the outcome is unknown (call again), `Broken` when its state contradicts
    itself. Safe to call from several threads; calls for one instance come one after the other.
    """

    @property
    def name(self) -> str:
        """The kind of hypervisor, as `--hypervisor` names it."""
        ...

    def hardware(self) -> Hardware:
        """Return what the host is made of."""
        ...

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every guest of the host, powered off and unreadable ones included."""
        ...

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when the host has no such guest."""
        ...

    def spawn(self, instance_id: InstanceId, spec: SpawnArgs) -> None:
        """Define and start a guest, all or nothing; `Broken` when another spec has this id."""
        ...

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest."""
        ...

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest; `HostRefused` when there is none."""
        ...

    def power_off(self, instance_id: InstanceId) -> None:
        """Stop a guest, keeping it; `HostRefused` when there is none."""
        ...

    def abort(self, instance_id: InstanceId) -> None:
        """Make the calls that run for this instance end now: `HostRefused`, nothing changed."""
        ...
