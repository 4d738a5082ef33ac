"""Where a compute worker dies: each trap holds it at one place of an instruction's life.

An instruction is delivered, journaled, acted upon, finished in the journal, and reported.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.acceptance.fleet import Fleet
from tests.acceptance.stops import Hit

VERB_OF = {"build": "spawn", "stop": "power_off", "start": "power_on", "delete": "destroy"}


class Trap:
    """Catches the worker of one host while it carries out an instruction."""

    place = ""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet = fleet
        self.host = host
        self.worker = fleet.members[f"compute-{host}"]

    @property
    def fault_options(self) -> tuple[str, ...]:
        """What the worker's lives need, so that there is time to catch it."""
        return ()

    def arm(self, operation_id: str) -> None:
        """Make ready, before the operation is asked for."""

    def wait(self, instance_id: str, verb: str) -> None:
        """Return when the worker is at the place."""

    def spring(self) -> None:
        """Kill it, and take the trap away."""
        self.worker.kill()

    def wait_journaled(self, kind: str, instance_id: str, verb: str) -> None:
        self.fleet.until(
            lambda: self.fleet.journaled(self.host, kind, instance_id, verb),
            f"{verb} to be {kind} on {self.host}",
        )


class Delivered(Trap):
    """The broker has handed the instruction over; nothing of it is written."""

    place = "delivered, not journaled"

    def arm(self, operation_id: str) -> None:
        self.worker.freeze()

    def wait(self, instance_id: str, verb: str) -> None:
        queue = f"compute_{self.host}"

        def handed_over() -> bool:
            with self.fleet.store.read() as uow:
                out = uow.operations.where(waiting_on=f"compute:{self.host}", ended_at=None)
                sent = bool(out) and not uow.outbox.where(queue=queue)
            return sent and self.fleet.sender.waiting(queue) == 0

        self.fleet.until(handed_over, f"{verb} to be handed over to {self.host}")


class Journaled(Trap):
    """It is in the journal, and the hypervisor is at work on it."""

    place = "journaled, not acted"

    @property
    def fault_options(self) -> tuple[str, ...]:
        return ("--habit", "latency_s=0.8")

    def wait(self, instance_id: str, verb: str) -> None:
        self.wait_journaled("accepted", instance_id, verb)


class Acted(Trap):
    """The hypervisor has done it; the journal does not say so."""

    place = "acted, not finished in the journal"

    def __init__(self, fleet: Fleet, host: str) -> None:
        super().__init__(fleet, host)
        self._effects = fleet.hypervisor(host) / "effects.jsonl"
        self._kept = self._effects.with_suffix(".kept")

    def arm(self, operation_id: str) -> None:
        """Put a pipe without a reader where the hypervisor next notes what it has done."""
        self._effects.touch()
        self._effects.rename(self._kept)
        os.mkfifo(self._effects)

    def wait(self, instance_id: str, verb: str) -> None:
        self.fleet.until(lambda: self._done(instance_id, verb), f"{verb} to be done")
        self._line = json.dumps({"instance_id": instance_id, "verb": verb}) + "\n"

    def spring(self) -> None:
        self.worker.kill()
        self._effects.unlink()
        self._kept.rename(self._effects)
        # It was done, and the pipe kept it from being noted.
        with self._effects.open("a") as story:
            story.write(self._line)

    def _done(self, instance_id: str, verb: str) -> bool:
        domain: Path = self.fleet.hypervisor(self.host) / f"{instance_id}.domain"
        if verb == "destroy":
            return not domain.exists()
        power = "shutdown" if verb == "power_off" else "running"
        return domain.exists() and json.loads(domain.read_text())["power"] == power


class Finished(Trap):
    """The journal has the answer; the broker has neither it nor the acknowledgement."""

    place = "finished in the journal, not reported"

    def arm(self, operation_id: str) -> None:
        self.fleet.wires[self.host].hold()

    def wait(self, instance_id: str, verb: str) -> None:
        self.wait_journaled("finished", instance_id, verb)
        assert self.fleet.wires[self.host].held.wait(10)

    def spring(self) -> None:
        self.worker.kill()
        time.sleep(0.05)  # the wire has to see the death before it opens
        self.fleet.wires[self.host].release()


class Answered(Trap):
    """The conductor has taken the answer; the worker may not know that it has left."""

    place = "answered, not noted as reported"

    def __init__(self, fleet: Fleet, host: str, moments: dict[str, str]) -> None:
        super().__init__(fleet, host)
        self._moments = iter(moments.values())
        self._number = 0
        self._hit: Hit | None = None

    def arm(self, operation_id: str) -> None:
        self._number = self.fleet.stops.put(operation_id, next(self._moments))

    def wait(self, instance_id: str, verb: str) -> None:
        self._hit = self.fleet.stops.wait_hit(self._number)

    def spring(self) -> None:
        assert self._hit is not None
        self.worker.kill()
        self.fleet.stops.go_on(self._number, self._hit)


class Acknowledged(Finished):
    """The broker has the acknowledgement, and not the answer: it will not deliver it again."""

    place = "acknowledged, not reported"

    @property
    def fault_options(self) -> tuple[str, ...]:
        return ("--habit", "latency_s=1")

    def arm(self, operation_id: str) -> None:
        """Wait until it is at work."""

    def wait(self, instance_id: str, verb: str) -> None:
        self.wait_journaled("accepted", instance_id, verb)
        time.sleep(0.3)  # what is journaled is acknowledged at once
        self.fleet.wires[self.host].hold()
        super().wait(instance_id, verb)
