"""The long work that runs for each guest, so that it can be aborted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

from models.ids import InstanceId
from workers.images.file_work import FileWork


class RunningWork:
    """Knows what runs for which guest; used by all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._events: dict[InstanceId, list[Event]] = {}

    @contextmanager
    def of(self, instance_id: InstanceId) -> Iterator[FileWork]:
        """Give work that `abort` ends while the block runs."""
        work = FileWork()
        with self._lock:
            self._events.setdefault(instance_id, []).append(work.aborted)
        try:
            yield work
        finally:
            with self._lock:
                self._events[instance_id].remove(work.aborted)
                if not self._events[instance_id]:
                    del self._events[instance_id]

    def abort(self, instance_id: InstanceId) -> None:
        """End what runs for a guest now."""
        with self._lock:
            for aborted in self._events.get(instance_id, ()):
                aborted.set()
