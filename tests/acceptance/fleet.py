"""A whole system of real processes on real services, and what a test does to it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from conductor.store import DeadLetter, Host, Instance, OperationRecord
from conductor.store.open_store import open_store
from models.lifecycle import InstanceState
from tests.acceptance.figures import Figures
from tests.acceptance.members import Member
from tests.acceptance.sending import CONTEXT, Sender
from tests.acceptance.stops import Stops
from tests.acceptance.wire import Wire
from tests.environment.warm_processes import run_warm
from tests.limits import limit_s, wait_for
from tests.operations.world import small_host

END_S = 60.0
TIMES = {
    # Short, so that what waits for a clock is soon due; long enough for a busy machine.
    "CONDUCTOR_TICK_S": "0.25",
    "CONDUCTOR_HEARTBEAT_S": "0.5",
    "CONDUCTOR_MANIFEST_S": "2",
    "CONDUCTOR_ASK_AGAIN_S": "2",
    "CONDUCTOR_DOWN_AFTER_S": "30",
}

HARDWARE = small_host(cpus=16, memory_mib=32_768)
"""Every host has 16 shared and 16 dedicated CPUs."""


@dataclass(frozen=True)
class Services:
    """Where the services are that belong to this fleet alone."""

    broker_url: str
    database_url: str
    result_url: str


class Fleet:
    """Conductors, schedulers and compute workers; every one may be killed at any time."""

    def __init__(self, services: Services, directory: Path, times: Mapping[str, str]) -> None:
        self.services = services
        self.directory = directory
        self.store = open_store(services.database_url)
        self.sender = Sender(services.broker_url, services.result_url)
        self.members: dict[str, Member] = {}
        self.wires: dict[str, Wire] = {}
        self.hosts: list[str] = []
        self.figures = Figures()
        plain = {k: v for k, v in os.environ.items() if not k.startswith("CONDUCTOR_")}
        self.environment = {
            **plain,
            **times,
            "CONDUCTOR_BROKER_URL": services.broker_url,
            "CONDUCTOR_DATABASE_URL": services.database_url,
            "CONDUCTOR_RESULT_URL": services.result_url,
        }
        self.command("db", "upgrade")
        self.stops = Stops(services.database_url)

    # -- processes -------------------------------------------------------------------------

    def add(self, role: str, count: int) -> None:
        """Add conductors or schedulers, not yet started."""
        for number in range(1, count + 1):
            self._add(f"{role}-{number}", (role,), self.environment)

    def add_host(
        self,
        name: str,
        hardware: Mapping[str, Any] | None = None,
        *fault_options: str,
        wired: bool = False,
    ) -> None:
        """Add the compute worker of a host; `wired` puts a `Wire` before its broker."""
        self.write_hardware(name, HARDWARE)
        self.hosts.append(name)
        environment = dict(self.environment)
        for secret in ("CONDUCTOR_DATABASE_URL", "CONDUCTOR_RESULT_URL"):
            del environment[secret]
        if wired:
            parts = urlsplit(self.services.broker_url)
            wire = self.wires[name] = Wire(parts.hostname or "127.0.0.1", parts.port or 5672)
            login, _, _ = parts.netloc.rpartition("@")
            netloc = f"{login}@127.0.0.1:{wire.port}"
            environment["CONDUCTOR_BROKER_URL"] = urlunsplit(parts._replace(netloc=netloc))
        arguments = (
            *("compute", "--host", name, "--topology", str(self.hardware_file(name))),
            *("--state-dir", str(self.directory)),
        )
        self._add(f"compute-{name}", arguments, environment)

    def add_libvirt_host(self, name: str, *options: str) -> None:
        """Add the compute worker of a host with libvirt."""
        self.hosts.append(name)
        environment = dict(self.environment)
        for secret in ("CONDUCTOR_DATABASE_URL", "CONDUCTOR_RESULT_URL"):
            del environment[secret]
        arguments = ("compute", "--host", name, "--hypervisor", "libvirt", *options)
        self._add(f"compute-{name}", (*arguments, "--state-dir", str(self.directory)), environment)

    def start(self, *names: str) -> None:
        """Start members (all that do not run, without names) and return when they consume."""
        chosen = [self.members[n] for n in names] if names else list(self.members.values())
        for member in chosen:
            if not member.alive:
                member.start()
        for member in chosen:
            member.wait_ready()

    def until_greeted(self) -> None:
        """Return when every host has been taken in."""

        def look() -> bool:
            with self.store.read() as uow:
                return {host.name for host in uow.hosts.where()} >= set(self.hosts)

        self.until(look, "hosts to be taken in")

    def define(self, entry: str, **body: Any) -> None:
        """Define a flavor, zone, quota …, and return when it is."""
        request = {"context": CONTEXT, "entry": entry, "body": body}
        record = self.ended(self.sender.send("define_entry", request))
        assert record.error is None, record.error

    def settle(self, timeout_s: float = END_S) -> None:
        """Return when every operation has ended, every message has left, and every queue is empty.

        Hosts may still hold what a message left there; their next inventory report shows it.
        """

        def look() -> bool:
            with self.store.read() as uow:
                if uow.operations.count(ended_at=None) or uow.outbox.count():
                    return False
                homes = {i.id: i.host for i in uow.instances.where() if i.host is not None}
            return self.guests() == homes

        self.until(look, "operations to end, letters to leave and guests to agree", timeout_s)

    def restart(self, name: str, *more: str) -> None:
        """Begin the next life of a member, dead or alive, without waiting for it."""
        self.members[name].kill()
        self.members[name].start(*more)

    def heal(self) -> None:
        """Bring everything back to how it began: every member alive, no injected fault."""
        for wire in self.wires.values():
            wire.release()
        for name in self.hosts:
            if self.write_hardware(name, HARDWARE):
                self.members[f"compute-{name}"].kill()
        for member in self.members.values():
            if member.alive and member.changed:
                member.kill()
        self.start()

    def clear(self) -> None:
        """Delete every instance, and find nothing in use."""
        with self.store.read() as uow:
            left = [i.id for i in uow.instances.where() if i.state is not InstanceState.DELETED]
        self.all_ended([self.sender.ask("delete", id_) for id_ in left])
        self.settle()
        with self.store.read() as uow:
            used = {host.name: host.used for host in uow.hosts.where() if any(host.used.values())}
            assert not used, f"nobody is left, but in use is {used}"
            assert not uow.allocations.where()

    def close(self) -> None:
        """Kill everything, and count what was asked."""
        for member in self.members.values():
            member.kill()
        for wire in self.wires.values():
            wire.close()
        with self.store.read() as uow:
            self.figures.operations = uow.operations.count(parent_id=None)
            self.figures.unended = uow.operations.count(parent_id=None, ended_at=None)
        self.stops.close()
        self.store.close()

    def command(self, *words: str) -> Any:
        """Run `conductor …` as an operator does; return its JSON."""
        done = run_warm(
            "conductor",
            [*words, "-o", "json"],
            environment=self.environment,
            timeout_s=limit_s(60),
        )
        assert done.returncode == 0, f"conductor {' '.join(words)}: {done.stderr[-2000:]}"
        return json.loads(done.stdout)

    # -- looking ---------------------------------------------------------------------------

    def operation(self, id_: str) -> OperationRecord | None:
        with self.store.read() as uow:
            return uow.operations.get(id_)

    def instance(self, id_: str) -> Instance:
        with self.store.read() as uow:
            found = uow.instances.get(id_)
        assert found is not None, f"no instance {id_}"
        return found

    def host(self, name: str) -> Host:
        with self.store.read() as uow:
            found = uow.hosts.get(name)
        assert found is not None, f"no host {name}"
        return found

    def ended(self, id_: str, timeout_s: float = END_S) -> OperationRecord:
        """Return an operation once it has ended."""

        def look() -> OperationRecord | None:
            record = self.operation(id_)
            return record if record is not None and record.state.ended else None

        return self.until(look, f"operation {id_} to end", timeout_s)

    def all_ended(self, ids: Iterable[str], timeout_s: float = END_S) -> list[OperationRecord]:
        """Return operations once all have ended, in the order given."""
        return [self.ended(id_, timeout_s) for id_ in ids]

    def until(self, look: Callable[[], Any], what: str, timeout_s: float = END_S) -> Any:
        """Return what `look` returns once that is something."""
        return wait_for(look, what, timeout_s)

    def guests(self) -> dict[str, str]:
        """Return every guest that a hypervisor really has, and where."""
        return {
            path.name.removesuffix(".domain"): host
            for host in self.hosts
            for path in self.hypervisor(host).glob("*.domain")
        }

    def guest_pairs(self) -> set[tuple[str, str | None]]:
        """Return every (instance, host) of which a hypervisor really has a guest."""
        return {
            (path.name.removesuffix(".domain"), host)
            for host in self.hosts
            for path in self.hypervisor(host).glob("*.domain")
        }

    def effects(self, instance_id: str, verb: str) -> int:
        """Return how often a verb changed something for an instance, on all hosts together."""
        return sum(
            (line["instance_id"], line["verb"]) == (instance_id, verb)
            for host in self.hosts
            for line in _lines(self.hypervisor(host) / "effects.jsonl")
        )

    def all_effects(self, subjects: Container[str]) -> Counter[str]:
        """Return how often each verb changed something for any of these, on all hosts together."""
        return Counter(
            line["verb"]
            for host in self.hosts
            for line in _lines(self.hypervisor(host) / "effects.jsonl")
            if line["instance_id"] in subjects
        )

    def journaled(self, host: str, kind: str, instance_id: str, verb: str) -> bool:
        """Say whether a host's journal holds an entry of this kind for an instruction."""
        journal = self.directory / host / "journal.log"
        if not journal.exists():
            return False
        keys = set()
        for line in journal.read_text().splitlines():
            entry = json.loads(line.partition(" ")[2])
            instruction = entry.get("instruction", {})
            if (instruction.get("instance_id"), instruction.get("verb")) == (instance_id, verb):
                keys.add(_key(instruction["token"]))
            elif entry["kind"] == "finished" == kind and _key(entry["reply"]["token"]) in keys:
                return True
        return bool(keys) and kind == "accepted"

    def outbox(self) -> int:
        """Return how many messages wait to leave, or to be forgotten."""
        with self.store.read() as uow:
            return uow.outbox.count()

    def dead_letters(self) -> list[DeadLetter]:
        with self.store.read() as uow:
            return uow.dead_letters.where()

    def decided(self, instance_id: str) -> list[str | None]:
        """Return the hosts that the scheduler chose for an instance, in order."""
        with self.store.read() as uow:
            return [decision.host for decision in uow.decisions.where(instance_id=instance_id)]

    # -- places ----------------------------------------------------------------------------

    def hypervisor(self, host: str) -> Path:
        return self.directory / host / "hypervisor"

    def hardware_file(self, host: str) -> Path:
        return self.directory / f"{host}.json"

    def write_hardware(self, host: str, hardware: Mapping[str, Any]) -> bool:
        """Let a host have this hardware from its worker's next life on; say if it is another."""
        file, text = self.hardware_file(host), json.dumps(hardware)
        other = not file.exists() or file.read_text() != text
        file.write_text(text)
        return other

    def _add(self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        log = self.directory / f"{name}.log"
        self.members[name] = Member(name, arguments, environment, log)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _key(token: Mapping[str, Any]) -> tuple[str, int]:
    return token["operation_id"], token["sequence"]
