"""The outcome of the demo: counts, refusals, the audit, and hosts to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor.cli.demo.demo_audit import disagreements, read_books
from conductor.cli.demo.demo_progress import OperationStatus, Refusals, look, refusals, retried
from conductor.cli.rendering.render_layout import Guest
from conductor.cli.store_queries import guests_of
from conductor.store import Host, Store
from workers.hypervisor.ports import GuestDomain

_DRAWN: Final = ("alder-01", "birch-01", "cedar-01")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A host to draw at the end."""

    host: Host
    guests: list[Guest]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the demo."""

    status: OperationStatus
    refused: list[Refusals]
    retried: int
    wrong: list[str]
    drawn: list[Drawn]
    directory: Path = Path()
    seconds: float = 0.0
    crashed: str | None = None
    failed_move: str | None = None


def outcome_of(store: Store, domains: Mapping[str, Sequence[GuestDomain]]) -> Outcome:
    """Return the outcome as the database and the hypervisors have it."""
    with store.read() as uow:
        hosts = {host.name: host for host in uow.hosts.where()}
        return Outcome(
            status=look(uow),
            refused=refusals(uow),
            retried=retried(uow),
            wrong=disagreements(read_books(uow, domains)),
            drawn=[Drawn(hosts[name], guests_of(uow, name)) for name in _DRAWN],
        )
