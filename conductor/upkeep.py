"""Periodic work in parts: each runs whatever becomes of the others; `health` shows failures."""

from __future__ import annotations

from collections.abc import Callable

from conductor.store import CatalogueEntry, Store, UnitOfWork
from models.errors import ConductorError, Conflict, Unreachable, defect_text
from models.messages.json_safety import kept
from models.throttled_log import ThrottledLog

_MESSAGE_KEPT = 500

TROUBLE = "trouble"
"""The kind of catalogue entries that say what fails of a process's periodic work."""


REFUSED_REPORTS = "reports"
"""The part under which a conductor names the accounts whose reports it does not take."""


class PeriodicWork:
    """The periodic work of one process.

    What fails is noted in the database under the process's name until it succeeds again, so that
    `health` can tell it; while the database itself is away, it is `health` that says so.
    """

    def __init__(self, store: Store, process: str) -> None:
        self._store = store
        self._process = process
        self._noted: dict[str, str] = {}
        self._warnings = ThrottledLog()

    def run(self, **parts: Callable[[], object]) -> None:
        """Do every part, in order; raise the first error once all of them have been tried."""
        first: Exception | None = None
        for name, work in parts.items():
            failure = self._tried(name, work)
            first = first or failure
        if first is not None:
            raise first

    def _tried(self, name: str, work: Callable[[], object]) -> Exception | None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is raised when the other parts are done
            why = _why(error)
            self._warnings.warn(f"a part of the periodic work failed: {name}", reason=why)
            self.note(name, why)
            return error
        self.clear(name)
        return None

    def note(self, name: str, why: str) -> None:
        """Let `health` say why a part is not well."""
        if self._noted.get(name) == why:
            return

        def put(uow: UnitOfWork) -> None:
            body = {"message": kept(why[:_MESSAGE_KEPT])}
            uow.catalogue.put(CatalogueEntry(TROUBLE, f"{self._process}/{name}", body, uow.now))

        if self._written(put):
            self._noted[name] = why

    def clear(self, name: str) -> None:
        """Let `health` say no more of a part: it is well."""
        if name not in self._noted:
            return
        if self._written(lambda uow: uow.catalogue.drop(TROUBLE, f"{self._process}/{name}")):
            del self._noted[name]

    def _written(self, work: Callable[[UnitOfWork], object]) -> bool:
        try:
            with self._store.begin() as uow:
                work(uow)
        except (Conflict, Unreachable):
            return False
        return True


def _why(error: Exception) -> str:
    if isinstance(error, ConductorError):
        return f"{error.code}: {error}"
    return defect_text("it failed", error)


def troubles(uow: UnitOfWork) -> list[tuple[str, str]]:
    """Return what fails, by `process/part`; of processes that are gone, only until they retire."""
    living = {beat.name for beat in uow.heartbeats.where(kind=("conductor", "scheduler"))}
    return [
        (entry.name, str(entry.body.get("message", "")))
        for entry in uow.catalogue.where(kind=TROUBLE)
        if entry.name.rpartition("/")[0] in living
    ]


def forget_processes(uow: UnitOfWork, silent_since: float) -> int:
    """Forget processes not heard of since, and what failed in them; return how many records.

    Each start of a process has a name of its own. Hosts keep theirs.
    """
    beats = uow.heartbeats.where(kind=("conductor", "scheduler"))
    gone = [beat.name for beat in beats if beat.seen_at < silent_since]
    living = {beat.name for beat in beats} - set(gone)
    failed = [
        entry.name
        for entry in uow.catalogue.where(kind=TROUBLE)
        if entry.name.rpartition("/")[0] not in living
    ]
    dropped = sum(uow.heartbeats.drop(name) for name in gone)
    return dropped + sum(uow.catalogue.drop(TROUBLE, name) for name in failed)
