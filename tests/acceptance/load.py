"""Other services at work: builds, stops, starts and deletes, all at once, until told to end."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import CONTEXT, PINNED, SHARED, build_body, child_of, instance_of
from tests.limits import Limit

_PATIENCE_S = 90.0


@dataclass
class Load:
    """Sends `builds` requests, and others about their instances, `pause_s` apart."""

    fleet: Fleet
    chance: random.Random
    builds: int
    pause_s: float
    sent: dict[str, list[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def start(self) -> threading.Thread:
        """Begin in a thread of its own; join it to wait for the last request."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    @property
    def operations(self) -> list[str]:
        """Every operation asked for."""
        return [id_ for ids in self.sent.values() for id_ in ids]

    def check(self, *, refusals: bool = False) -> None:
        """Every build ended active unless somebody deleted it; every delete won.

        With `refusals` of hosts a build may have failed, once it has tried them.
        """
        for build, ids in self.sent.items():
            self._check_build(build, refusals=refusals)
            for id_ in ids:
                other = self.fleet.operation(id_)
                assert other is not None
                assert other.state is not OperationState.STUCK, other
                if other.kind == "delete_instance":
                    assert other.state is OperationState.SUCCEEDED, other

    def _check_build(self, build: str, *, refusals: bool) -> None:
        record = self.fleet.operation(build)
        assert record is not None
        instance = self.fleet.instance(instance_of(build))
        tried = refusals and (record.error or {}).get("code") == "max_retries_exceeded"
        if build in self.deleted:
            assert instance.state is InstanceState.DELETED, instance
        elif tried:
            assert instance.state is InstanceState.ERROR, instance
        else:
            assert record.state is OperationState.SUCCEEDED, record
            assert instance.state in (InstanceState.ACTIVE, InstanceState.STOPPED), instance
        made = self.fleet.effects(instance.id, "spawn")
        removed = self.fleet.effects(instance.id, "destroy")
        assert made - removed == (instance.host is not None), (instance, made, removed)
        child = self.fleet.operation(child_of(build))
        if child is None:
            # Its delete was accepted first, while whoever had the build died: nothing was begun.
            assert build in self.deleted, record
            assert made == 0, (instance, made)
            return
        # On a machine so busy that a host seems dead, another one is tried, and that is right.
        assert made <= 1 + len(child.attempts), (instance, made, child.attempts)

    def _run(self) -> None:
        for _ in range(self.builds):
            build = str(uuid.uuid4())
            self.sent[build] = [build]
            # Few enough with dedicated CPUs that there is room for all of them.
            body = build_body(PINNED if self.chance.random() < 0.15 else SHARED)
            self._send("build_instances", body, build)
            if self.chance.random() < 0.7:
                self._ask()
            time.sleep(self.pause_s)

    def _ask(self) -> None:
        """Ask something of an instance that nobody has deleted yet."""
        living = [build for build in self.sent if build not in self.deleted]
        build = self.chance.choice(living)
        verb = self.chance.choice(["stop", "start", "delete"])
        if verb == "delete":
            self.deleted.add(build)
        id_ = str(uuid.uuid4())
        self.sent[build].append(id_)
        body = {"context": CONTEXT, "instance_id": instance_of(build)}
        self._send(f"{verb}_instance", body, id_)

    def _send(self, task: str, body: dict[str, object], id_: str) -> None:
        """Send until the broker has it; the same id twice is one operation."""
        self.counts[task] += 1
        limit = Limit(_PATIENCE_S)
        while not limit.over:
            try:
                self.fleet.sender.send(task, body, id_)
            except Exception:  # noqa: BLE001 - the broker is being troubled in many ways
                time.sleep(0.2)
            else:
                return
        raise AssertionError("the broker takes nothing")
