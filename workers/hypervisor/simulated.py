"""A hypervisor without guests: it keeps their definitions, takes its time and fails as told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import TypeAlias

from models.errors import Broken, HostRefused, Unreachable
from models.ids import InstanceId
from models.messages.letters import SpawnArgs
from workers.hypervisor.fates import Call, Fate, Fates, always_done
from workers.hypervisor.port import GuestDomain, Hardware, Power
from workers.hypervisor.saved import read_domains, write_domain

SPAWN, DESTROY, POWER_ON, POWER_OFF = "spawn", "destroy", "power_on", "power_off"
RESHAPE, REBUILD, SNAPSHOT = "reshape", "rebuild", "snapshot"
CHECK_TARGET, CHECK_SOURCE, ACTIVATE = "check_target", "check_source", "activate"

_Change: TypeAlias = Callable[[GuestDomain | None], GuestDomain | None]


@dataclass(eq=False)
class _UnderWay:
    """A call under way; compared by identity, since an instance may have several."""

    aborted: Event = field(default_factory=Event)


class SimulatedHypervisor:
    """Keeps domains in memory, and in `directory` when one is given, beyond any agent's death.

    With a directory the state also survives the process (a killed process, not a power cut:
    nothing is synced). `calls` and `effects` count per (instance, verb) since opening: an
    effect is a call that changed something. `effects.jsonl` in the directory lists every
    effect ever, so that a test can tell "once" from "twice" across processes.
    """

    def __init__(
        self, hardware: Hardware, directory: Path | None = None, fates: Fates = always_done
    ) -> None:
        self._hardware = hardware
        self._directory = directory
        self._fates = fates
        self._lock = Lock()
        self._running: dict[InstanceId, list[_UnderWay]] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._effects: Counter[tuple[str, str]] = Counter()
        self._domains: dict[InstanceId, GuestDomain] = {}
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._domains = read_domains(directory)

    @property
    def name(self) -> str:
        """The kind of hypervisor, as `--hypervisor` names it."""
        return "simulated"

    def hardware(self) -> Hardware:
        """Return the hardware it was given."""
        return self._hardware

    def domains(self) -> tuple[GuestDomain, ...]:
        """Return every guest, in the order in which they came."""
        with self._lock:
            return tuple(self._domains.values())

    def domain(self, instance_id: InstanceId) -> GuestDomain | None:
        """Return one guest, None when there is no such guest."""
        with self._lock:
            return self._domains.get(instance_id)

    def calls(self, instance_id: str, verb: str) -> int:
        """Return how often a verb was called for an instance since opening."""
        with self._lock:
            return self._calls[instance_id, verb]

    def effects(self, instance_id: str, verb: str) -> int:
        """Return how often such a call changed something since opening."""
        with self._lock:
            return self._effects[instance_id, verb]

    def spawn(self, instance_id: InstanceId, spec: SpawnArgs) -> None:
        """Define a guest with the power of its spec; `Broken` when it exists with another spec."""
        wanted = _defined(instance_id, spec)

        def spawned(before: GuestDomain | None) -> GuestDomain:
            if before is not None and before.spec != wanted.spec:
                message = f"instance {instance_id} exists here with another spec"
                raise Broken("domain_differs", message, instance_id=instance_id)
            return wanted

        self._perform(instance_id, SPAWN, spawned)

    def reshape(self, instance_id: InstanceId, spec: SpawnArgs) -> None:
        """Give a guest another definition and power; `HostRefused` when there is none."""

        def reshaped(before: GuestDomain | None) -> GuestDomain:
            _there(instance_id, before)
            return _defined(instance_id, spec)

        self._perform(instance_id, RESHAPE, reshaped)

    def rebuild(self, instance_id: InstanceId, spec: SpawnArgs) -> None:
        """Make a guest anew from its image, whatever was there under its id."""
        self._perform(instance_id, REBUILD, lambda _: _defined(instance_id, spec))

    def destroy(self, instance_id: InstanceId) -> None:
        """Stop and remove a guest."""
        self._perform(instance_id, DESTROY, lambda _: None)

    def power_on(self, instance_id: InstanceId) -> None:
        """Start a guest; `HostRefused` when there is none."""
        self._perform(
            instance_id, POWER_ON, lambda before: _powered(instance_id, before, "running")
        )

    def power_off(self, instance_id: InstanceId) -> None:
        """Stop a guest, keeping it; `HostRefused` when there is none."""
        self._perform(
            instance_id, POWER_OFF, lambda before: _powered(instance_id, before, "shutdown")
        )

    def snapshot(self, instance_id: InstanceId) -> None:
        """Take the time of it; `HostRefused` when there is no guest."""
        self._perform(instance_id, SNAPSHOT, lambda before: _there(instance_id, before))

    def check_target(self, instance_id: InstanceId, _: SpawnArgs) -> None:
        """Change nothing: a simulation can run any guest."""
        self._perform(instance_id, CHECK_TARGET, lambda before: before)

    def check_source(self, instance_id: InstanceId) -> None:
        """Change nothing; `HostRefused` when there is no guest, or none that runs."""
        self._perform(instance_id, CHECK_SOURCE, lambda before: _running(instance_id, before))

    def activate(self, instance_id: InstanceId) -> None:
        """Let a waiting guest run; `HostRefused` when there is none, or one that is stopped."""
        self._perform(instance_id, ACTIVATE, lambda before: _activated(instance_id, before))

    def abort(self, instance_id: InstanceId) -> None:
        """End the calls that run for this instance: `HostRefused`, nothing changed."""
        with self._lock:
            for call in self._running.get(instance_id, ()):
                call.aborted.set()

    def _perform(self, instance_id: InstanceId, verb: str, change: _Change) -> None:
        running = _UnderWay()
        with self._lock:
            nth = self._calls[instance_id, verb]
            self._calls[instance_id, verb] += 1
            self._running.setdefault(instance_id, []).append(running)
        try:
            fate = self._fates(Call(instance_id, verb, nth))
            if fate.ending == "hang":
                running.aborted.wait()
            elif fate.latency_s > 0:
                running.aborted.wait(fate.latency_s)
            with self._lock:
                # Looked at under the lock: an abort either comes first or comes too late.
                if running.aborted.is_set():
                    message = f"{verb} of instance {instance_id} was aborted"
                    raise HostRefused("aborted", message, instance_id=instance_id)
                _raise_unless_done(instance_id, verb, fate)
                self._change(instance_id, verb, change)
        finally:
            self._forget(instance_id, running)
        if fate.ending == "lost_after":
            raise _lost(instance_id, verb)

    def _change(self, instance_id: InstanceId, verb: str, change: _Change) -> None:
        before = self._domains.get(instance_id)
        after = change(before)
        if after == before:
            return
        if self._directory is not None:
            write_domain(self._directory, instance_id, verb, after)
        if after is None:
            del self._domains[instance_id]
        else:
            self._domains[instance_id] = after
        self._effects[instance_id, verb] += 1

    def _forget(self, instance_id: InstanceId, running: _UnderWay) -> None:
        with self._lock:
            self._running[instance_id].remove(running)
            if not self._running[instance_id]:
                del self._running[instance_id]


def _raise_unless_done(instance_id: InstanceId, verb: str, fate: Fate) -> None:
    if fate.ending == "refused":
        message = f"the simulated hypervisor refuses to {verb} instance {instance_id}"
        raise HostRefused("simulated_refusal", message, instance_id=instance_id)
    if fate.ending == "lost_before":
        raise _lost(instance_id, verb)


def _lost(instance_id: InstanceId, verb: str) -> Unreachable:
    message = f"the simulated hypervisor gave no answer to {verb} of instance {instance_id}"
    return Unreachable("hypervisor_silent", message, instance_id=instance_id)


def _there(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    if before is None:
        message = f"the host has no instance {instance_id}"
        raise HostRefused("domain_missing", message, instance_id=instance_id)
    return before


def _powered(instance_id: InstanceId, before: GuestDomain | None, power: Power) -> GuestDomain:
    return replace(_there(instance_id, before), power=power, copied_to=None)


def _running(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    there = _there(instance_id, before)
    if there.power != "running":
        message = f"instance {instance_id} is {there.power}: it must run"
        raise HostRefused("not_running", message, instance_id=instance_id, power=there.power)
    return there


def _activated(instance_id: InstanceId, before: GuestDomain | None) -> GuestDomain:
    there = _there(instance_id, before)
    if there.power == "shutdown":
        # Started from its disk it would have forgotten what it was doing, and nobody would know.
        message = f"instance {instance_id} is stopped and waits for no memory"
        raise HostRefused("not_waiting", message, instance_id=instance_id)
    return replace(there, power="running")


def _defined(instance_id: InstanceId, spec: SpawnArgs) -> GuestDomain:
    # Power is the guest's, not the definition's: two specs that differ in it are the same guest.
    return GuestDomain(instance_id, spec.power, spec.model_copy(update={"power": "running"}))
