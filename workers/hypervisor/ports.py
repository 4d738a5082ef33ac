"""The hypervisor port: what an agent asks of whatever runs the guests of its host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from models.hardware import HostTopology
from models.ids import InstanceId
from models.messages.guests.console_parts import ConsolePart
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage

Power = Literal["running", "paused", "suspended", "shutdown", "crashed", "nostate"]

OnProgress: TypeAlias = Callable[[int], None]
"""Told about once a second how far a long action is, in percent."""

OnChange: TypeAlias = Callable[[InstanceId], None]
"""Told that the power of a guest has changed, by itself or by an action; must return at once."""

IMAGE_CORRUPT = "image_corrupt"
"""Code of the `Unreachable` that says that an image came damaged: the next try may do better."""

DEFAULT_DISK_GB = 1_000
"""Disk of a host whose description names none."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a host is made of, whoever uses it; `topology` may carry use, which nobody reads."""

    topology: HostTopology
    disk_gb: int = DEFAULT_DISK_GB
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuestDomain:
    """One guest as the hypervisor has it; `spec` is None where it cannot be read, `fault` says why.

    A guest nobody asked us for has a spec too, as far as the hypervisor knows it. `power` is what
    the guest is, that of `spec` always `running`. `copied_to` names the host that a live migration
    has copied the guest to, and that has it run since. `disk` stands for what is on the root disk
    (a simulation's is a short text), None while it is awaited from another host.
    """

    instance_id: InstanceId
    power: Power
    spec: GuestDefinition | None
    fault: str = ""
    copied_to: str | None = None
    disk: str | None = ""


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

    @property
    def machine_id(self) -> str:
        """What tells this machine, with its guests, from every other; the same after a restart."""
        ...

    def hardware(self) -> Hardware:
        """Return what the host is made of."""
        ...

    def watch(self, on_change: OnChange) -> None:
        """Tell of every guest whose power changes from now on, from a thread of any kind."""
        ...

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every guest of the host, powered off and unreadable ones included."""
        ...

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when the host has no such guest."""
        ...

    def spawn(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Define a guest with the power of its spec; `Broken` when another spec has this id.

        Its root disk comes from where `spec.root_disk` says; one that is there already is kept.
        `HostRefused` (`disk_damaged`) when what has come is not what its checksum says.
        """
        ...

    def reshape(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Give a guest another definition and power; its disk stays. `HostRefused` without one."""
        ...

    def rebuild(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Make a guest anew from its image, whatever was there under its id."""
        ...

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest."""
        ...

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest; `HostRefused` when there is none, or its disk is still awaited.

        One that is paused or suspended goes on, one that has crashed begins anew.
        """
        ...

    def power_off(self, instance_id: InstanceId) -> None:
        """Stop a guest, keeping it; `HostRefused` when there is none."""
        ...

    def pause(self, instance_id: InstanceId) -> None:
        """Let a guest stand still, in memory; `HostRefused` (`not_running`) when none runs."""
        ...

    def suspend(self, instance_id: InstanceId) -> None:
        """Save a guest's memory and stop it; `HostRefused` (`not_running`) when none runs."""
        ...

    def reboot(self, instance_id: InstanceId, *, hard: bool) -> None:
        """Start a guest anew: asked to end by itself and in time, or (`hard`) without asking.

        `HostRefused` when there is none; a soft one needs one that runs (`not_running`).
        """
        ...

    def snapshot(self, instance_id: InstanceId) -> DiskImage:
        """Save the disk of a guest as an image that outlives it; `HostRefused` without one."""
        ...

    def offer_disk(self, instance_id: InstanceId) -> DiskImage:
        """Let another host take the disk of a guest that does not run; it stays as it is here.

        `HostRefused` when there is no guest, when it runs, or when its disk is still awaited.
        """
        ...

    def take_disk(self, instance_id: InstanceId, disk: DiskImage) -> str:
        """Have a disk that another host offers, whole, in a guest that does not run; its checksum.

        `HostRefused` when there is no guest or it runs, and (`disk_damaged`), nothing kept, when
        what came is not what was offered.
        """
        ...

    def check_disk(self, instance_id: InstanceId) -> None:
        """Change nothing; `HostRefused` when there is no guest, or its disk is still awaited."""
        ...

    def check_target(self, instance_id: InstanceId, spec: GuestDefinition) -> None:
        """Change nothing; `HostRefused` when such a guest could not run here."""
        ...

    def check_source(self, instance_id: InstanceId) -> None:
        """Change nothing; `HostRefused` when there is no guest, or none that runs."""
        ...

    def activate(self, instance_id: InstanceId, disk: DiskImage | None = None) -> None:
        """Let a guest run whose memory and disk have come; `HostRefused` when none runs or waits.

        `disk` is what the copy has said of the disk that travelled with the memory.
        """
        ...

    def destination(self, instance_id: InstanceId) -> dict[str, Any]:
        """Return what the source of a live migration must know of the guest that waits here."""
        ...

    def copy(
        self, instance_id: InstanceId, target: CopyTarget, on_progress: OnProgress
    ) -> DiskImage:
        """Copy a running guest, memory and disk, to the host where it waits, and stop it here.

        Takes as long as it takes. `HostRefused` when there is no guest, or none that runs; one
        that has been copied there already is done at once.
        """
        ...

    def abort_copy(self, instance_id: InstanceId) -> None:
        """Have a guest run that was being copied, or had been; `HostRefused` when there is none."""
        ...

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are cached, each of them whole."""
        ...

    def cache_image(self, owner: InstanceId, image: ImageFile) -> None:
        """Have an image in the cache; `Unreachable` (`image_corrupt`), nothing kept, if damaged.

        `owner` stands for the host where `abort` names an instance.
        """
        ...

    def console(self, instance_id: InstanceId, offset: int | None, most_bytes: int) -> ConsolePart:
        """Return what a guest has written to its console, from `offset` on or at its end.

        `HostRefused` (`domain_missing`) when there is no such guest.
        """
        ...

    def age_out(self, now: float, unused_s: float) -> tuple[str, ...]:
        """Remove the cached images that no guest has had for so long; return what has gone.

        Called every hour with the time; what came since the last call counts as used then.
        """
        ...

    def abort(self, instance_id: InstanceId) -> None:
        """Make the calls that run for this instance end now: `HostRefused`, nothing changed."""
        ...
