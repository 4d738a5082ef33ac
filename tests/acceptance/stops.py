"""Places where a process hangs because the test says so, inside a commit of its own.

Nothing of the product is touched: a deferred trigger in the test's database looks at every
operation that a transaction has written, notes it, and waits for a lock that the test holds where
the test has put a stop. It fires while the server works on COMMIT. So a process that hangs there
has sent everything, and has not yet heard that it is committed: killed now, its transaction
either counts (`go_on`: committed, nothing published) or does not (`break_off`: the same as death
just before the commit), and the test chooses which.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.limits import Limit

_LOCKS = 4711
"""First half of every advisory lock of ours; the second is the number of the stop."""

_SET_UP = """
CREATE SCHEMA acceptance;
CREATE TABLE acceptance.journey (
    n bigserial PRIMARY KEY, change xid8, writer text, root_id text, moment text);
CREATE TABLE acceptance.stop (number int PRIMARY KEY, root_id text, moment text);
CREATE FUNCTION acceptance.look() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here text := concat_ws(' ', NEW.kind, NEW.step, NEW.state,
                           split_part(NEW.waiting_on, ':', 1));
    halt int;
BEGIN
    INSERT INTO acceptance.journey (change, writer, root_id, moment)
    VALUES (pg_current_xact_id(), current_setting('application_name'), NEW.root_id, here);
    SELECT number INTO halt FROM acceptance.stop
    WHERE root_id = NEW.root_id AND moment = here;
    IF FOUND THEN
        PERFORM pg_advisory_xact_lock(%(locks)s, halt);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER look AFTER INSERT OR UPDATE ON operations
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION acceptance.look();
"""

_WAITING = """
SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND NOT l.granted AND l.classid = %s AND l.objid = %s
  AND a.datname = current_database()
"""

HIT_S = 30.0


@dataclass(frozen=True)
class Moment:
    """A state of an operation of a journey, and the role of the process that wrote it."""

    text: str
    role: str

    def __str__(self) -> str:
        return self.text.replace(" ", "/")


@dataclass(frozen=True)
class Hit:
    """A process that hangs at a stop: its name and the server's process that works for it."""

    writer: str
    backend: int


class Stops:
    """The stops of one database."""

    def __init__(self, database_url: str) -> None:
        plain = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._link = psycopg.connect(plain, autocommit=True, application_name="acceptance")
        self._numbers = itertools.count(1)
        self._link.execute(_SET_UP.replace("%(locks)s", str(_LOCKS)))

    def close(self) -> None:
        self._link.close()

    def put(self, root_id: str, moment: str) -> int:
        """Let the next process that brings the operation to this moment hang there."""
        number = next(self._numbers)
        self._run("SELECT pg_advisory_lock(%s, %s)", _LOCKS, number)
        self._run("INSERT INTO acceptance.stop VALUES (%s, %s, %s)", number, root_id, moment)
        return number

    def wait_hit(self, number: int) -> Hit:
        """Return who hangs at the stop, once somebody does."""
        limit = Limit(HIT_S)
        while True:
            rows = self._run(_WAITING, _LOCKS, number)
            if rows:
                return Hit(rows[0][1], rows[0][0])
            assert not limit.over, f"nobody came to the stop: {self._stops()}"
            time.sleep(0.01)

    def go_on(self, number: int, hit: Hit) -> None:
        """Let the commit happen, and return when it has; its process may be dead."""
        self._forget(number)
        self._wait_gone_or_on(hit)

    def break_off(self, number: int, hit: Hit) -> None:
        """Let the transaction be rolled back, as when its process died before its commit."""
        self._run("SELECT pg_terminate_backend(%s, 5000)", hit.backend)
        self._forget(number)

    def journey(self, root_id: str) -> list[Moment]:
        """Return one moment of each transaction that moved an operation or a child of it."""
        rows = self._run(
            "SELECT change, moment, writer FROM acceptance.journey WHERE root_id = %s ORDER BY n",
            root_id,
        )
        moments: list[Moment] = []
        seen: set[str] = set()
        for _, written in itertools.groupby(rows, key=lambda row: row[0]):
            # What this one was the first to write: a parent is also saved when a child ends.
            new = [(text, writer) for _, text, writer in written if text not in seen]
            seen.update(text for text, _ in new)
            if new:
                text, writer = new[-1]
                moments.append(Moment(text, writer.partition("-")[0]))
        return moments

    def backends(self) -> dict[int, str]:
        """Return the server's processes that work for ours, and for whom."""
        rows = self._run(
            "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
        return dict(rows)

    def terminate(self, backends: Iterable[int]) -> None:
        """End connections of this database from the server's side."""
        for backend in backends:
            self._run("SELECT pg_terminate_backend(%s)", backend)

    def held_up(self) -> bool:
        """Say whether somebody waits for what a process at a stop has locked."""
        return bool(
            self._run(
                "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted"
                " AND l.locktype <> 'advisory' AND a.datname = current_database()"
            )
        )

    def let_be_silent(self, name: str) -> None:
        """Let it be an hour that a host was heard of, while reports were being read."""
        self._run("UPDATE heartbeats SET seen_at = seen_at - 3600 WHERE name = %s", name)
        self._run("UPDATE heartbeats SET reported_at = seen_at - 3600 WHERE kind = 'echo'")

    def let_all_be_silent(self) -> None:
        """Let it be an hour that anything at all was heard, conductors of themselves included."""
        self._run("UPDATE heartbeats SET seen_at = seen_at - 3600")

    def _forget(self, number: int) -> None:
        self._run("DELETE FROM acceptance.stop WHERE number = %s", number)
        self._run("SELECT pg_advisory_unlock(%s, %s)", _LOCKS, number)

    def _wait_gone_or_on(self, hit: Hit) -> None:
        """A backend whose process is dead ends right after the commit, when it finds nobody."""
        limit = Limit(10.0)
        while self._run(
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'", hit.backend
        ):
            assert not limit.over, f"{hit} does not end"
            time.sleep(0.005)

    def _stops(self) -> list[Any]:
        return self._run("SELECT root_id, moment FROM acceptance.stop")

    def _run(self, statement: str, *values: Any) -> list[Any]:
        cursor = self._link.execute(statement, values)
        return cursor.fetchall() if cursor.description else []
