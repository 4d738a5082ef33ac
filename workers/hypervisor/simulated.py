"""A hypervisor without guests: it keeps their definitions, takes its time and fails as told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import TypeAlias
from urllib.parse import quote, unquote

from models.errors import Broken, ConductorError, HostRefused, Unreachable
from models.ids import InstanceId
from models.messages.base import parse
from models.messages.letters import SpawnArgs
from workers.hypervisor.fates import Call, Fate, Fates, always_done
from workers.hypervisor.port import GuestDomain, Hardware, Power

SPAWN, DESTROY, POWER_ON, POWER_OFF = "spawn", "destroy", "power_on", "power_off"

_Change: TypeAlias = Callable[[GuestDomain | None], GuestDomain | None]


@dataclass(eq=False)
class _Running:
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
        self._running: dict[InstanceId, list[_Running]] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._effects: Counter[tuple[str, str]] = Counter()
        self._domains: dict[InstanceId, GuestDomain] = {}
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._domains = {each.instance_id: each for each in map(_read, _files(directory))}

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
        """Define and start a guest; `Broken` when it exists with another spec."""

        def spawned(before: GuestDomain | None) -> GuestDomain:
            if before is None:
                return GuestDomain(instance_id, "running", spec)
            if before.spec != spec:
                message = f"instance {instance_id} exists here with another spec"
                raise Broken("domain_differs", message, instance_id=instance_id)
            return before

        self._perform(instance_id, SPAWN, spawned)

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

    def abort(self, instance_id: InstanceId) -> None:
        """End the calls that run for this instance: `HostRefused`, nothing changed."""
        with self._lock:
            for call in self._running.get(instance_id, ()):
                call.aborted.set()

    def _perform(self, instance_id: InstanceId, verb: str, change: _Change) -> None:
        running = _Running()
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
            _write(self._directory, instance_id, verb, after)
        if after is None:
            del self._domains[instance_id]
        else:
            self._domains[instance_id] = after
        self._effects[instance_id, verb] += 1

    def _forget(self, instance_id: InstanceId, running: _Running) -> None:
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


def _powered(instance_id: InstanceId, before: GuestDomain | None, power: Power) -> GuestDomain:
    if before is None:
        message = f"the host has no instance {instance_id}"
        raise HostRefused("domain_missing", message, instance_id=instance_id)
    return replace(before, power=power)


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.domain"), key=lambda path: (path.stat().st_mtime_ns, path.name))


def _read(path: Path) -> GuestDomain:
    instance_id = InstanceId(unquote(path.name.removesuffix(".domain")))
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return GuestDomain(instance_id, saved["power"], parse(SpawnArgs, saved["spec"]))
    except (OSError, ValueError, KeyError, TypeError, ConductorError) as error:
        # One unreadable guest must not hide the others (case N33).
        return GuestDomain(instance_id, "nostate", None, fault=str(error))


def _write(directory: Path, instance_id: InstanceId, verb: str, after: GuestDomain | None) -> None:
    """Save one domain by renaming a whole file into place; raise `Broken` when that fails."""
    # An id comes from outside: quoted, it cannot name a file elsewhere.
    path = directory / f"{quote(instance_id, safe='')}.domain"
    try:
        if after is None:
            path.unlink(missing_ok=True)
        else:
            spec = after.spec.to_json() if after.spec else None
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps({"power": after.power, "spec": spec}), encoding="utf-8")
            draft.replace(path)
        with (directory / "effects.jsonl").open("a", encoding="utf-8") as story:
            story.write(json.dumps({"instance_id": instance_id, "verb": verb}) + "\n")
    except OSError as error:
        message = f"the simulated hypervisor cannot save {path}: {error.strerror}"
        raise Broken("hypervisor_state", message, path=str(path)) from error
