"""Compute workers that die at every ask of an operation, whichever operation and host it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from conductor.operations.engine.wait_reasons import ON_HOST
from tests.acceptance.killing import Killer
from tests.acceptance.stops import Hit, Moment

PLACES = {
    "delivered": "delivered, not journaled",
    "journaled": "journaled, not acted",
    "finished": "finished in the journal, not reported",
    "answered": "answered, not noted as reported",
}
_ASKS = " compute"


@dataclass(frozen=True)
class Ask:
    """An instruction that is out: to which host, and under which token."""

    host: str
    token: tuple[str, int]


class DyingWorkers:
    """Kills the worker that was asked, at one of the `PLACES`, at every ask of an operation.

    Every ask is met in the commit that sends it, so that there is time to arrange for the rest.
    """

    def __init__(self, killer: Killer, place: str, hosts: Iterable[str]) -> None:
        self._fleet = killer.fleet
        self._killer = killer
        self._place = place
        self._hosts = tuple(hosts)
        self._fault_options = ("--habit", "latency_s=0.8") if place == "journaled" else ()
        for host in self._hosts:
            if self._fault_options:
                self._fleet.restart(f"compute-{host}", *self._fault_options)
        self._fleet.start()

    def go_through(self, id_: str, journey: list[Moment], ask: Callable[[], object]) -> None:
        """Ask for operation `id_`, and kill at each of its asks; return when it has ended."""
        asks = [n for n, moment in enumerate(journey) if moment.text.endswith(_ASKS)]
        meet = list(_answers(journey, asks)) if self._place == "answered" else asks
        numbers = [self._fleet.stops.put(id_, journey[n].text) for n in meet]
        ask()
        note: Callable[[], None] | None = None
        for number, moment in zip(numbers, (journey[n] for n in asks), strict=True):
            hit = self._fleet.stops.wait_hit(number)
            if note:
                note()
            kill = self._kill_answered if self._place == "answered" else self._kill_asked
            died_at = time.monotonic()
            member = kill(id_, number, hit, moment)
            what = f"{PLACES[self._place]}: {moment}"
            note = partial(self._killer.note, what, member, died_at)
        self._fleet.ended(id_)
        if note:
            note()

    def _kill_answered(self, id_: str, number: int, hit: Hit, moment: Moment) -> str:
        host = self._out(id_)[0].host  # what has taken the answer is not yet committed
        self._fleet.members[f"compute-{host}"].kill()
        self._fleet.stops.go_on(number, hit)
        return self._start_again(host)

    def _kill_asked(self, id_: str, number: int, hit: Hit, moment: Moment) -> str:
        fleet = self._fleet
        before = {ask.token for ask in self._out(id_)}
        if self._place == "delivered":
            for host in self._hosts:
                fleet.members[f"compute-{host}"].freeze()
        if self._place == "finished":
            for host in self._hosts:
                fleet.wires[host].hold()
        fleet.stops.go_on(number, hit)
        new = fleet.until(
            lambda: [ask for ask in self._out(id_) if ask.token not in before], f"{moment}"
        )
        fleet.until(lambda: self._arrived(new[0]), f"{moment} to be {self._place}")
        fleet.members[f"compute-{new[0].host}"].kill()
        if self._place == "delivered":
            for host in set(self._hosts) - {new[0].host}:
                fleet.members[f"compute-{host}"].thaw()
        if self._place == "finished":
            time.sleep(0.05)  # the wire has to see the death before it opens
            for host in self._hosts:
                fleet.wires[host].release()
        return self._start_again(new[0].host)

    def _start_again(self, host: str) -> str:
        member = self._fleet.members[f"compute-{host}"]
        member.start(*self._fault_options)
        member.wait_ready()
        return member.name

    def _out(self, id_: str) -> list[Ask]:
        with self._fleet.store.read() as uow:
            return [
                Ask(record.waiting_on.removeprefix(ON_HOST), (record.id, record.sequence))
                for record in uow.operations.where(root_id=id_, ended_at=None)
                if record.waiting_on is not None and record.waiting_on.startswith(ON_HOST)
            ]

    def _arrived(self, ask: Ask) -> bool:
        if self._place == "delivered":
            queue = f"compute_{ask.host}"
            with self._fleet.store.read() as uow:
                left = not uow.outbox.where(queue=queue)
            return left and self._fleet.sender.waiting(queue) == 0
        entries = self._journal(ask)
        if self._place == "journaled":
            return "accepted" in entries
        return "finished" in entries and self._fleet.wires[ask.host].held.is_set()

    def _journal(self, ask: Ask) -> set[str]:
        """Return which kinds of entries the host's journal has for an ask."""
        path = self._fleet.directory / ask.host / "journal.log"
        found = set()
        for line in path.read_text().splitlines():
            entry = json.loads(line.partition(" ")[2])
            token = (entry.get("instruction") or entry.get("reply") or {}).get("token")
            if token and (token["operation_id"], token["sequence"]) == ask.token:
                found.add(entry["kind"])
        return found


def _answers(journey: Sequence[Moment], asks: Iterable[int]) -> Iterator[int]:
    """Yield where each ask is answered: children ask side by side, and answer as they like."""
    left = [n for n, moment in enumerate(journey) if not moment.text.endswith(_ASKS)]
    for ask in asks:
        answer = next(n for n in left if n > ask)
        left.remove(answer)
        yield answer
