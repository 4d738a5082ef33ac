"""What every journal promises, on every adapter."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from models.messages.internal import Reply
from tests.workers.world import HOST, instruction
from workers.journal.entries import Accepted, Entry, Finished, Reported, Seen, token_key
from workers.journal.instruction_ledger import Keeping, Ledger
from workers.journal.journal_file import FileJournal
from workers.journal.memory_journal import MemoryJournal
from workers.journal.ports import Journal

Make = Callable[[], Journal]

SPAWN = instruction("spawn", fence=3)
DONE = Reply(token=SPAWN.token, sender=HOST, outcome="done", result={"power_state": "running"})
STORY: tuple[Entry, ...] = (
    Seen(1.0, "other", 9, "op/step/1/9", 8),
    Accepted(2.5, SPAWN),
    Finished(3.5, DONE),
    Reported(token_key(SPAWN.token)),
)


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return MemoryJournal() if request.param == "memory" else FileJournal(tmp_path / "journal")


def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert journal.entries() == ()


def test_every_kind_of_entry_is_read_back_as_written_in_order(journal: Journal) -> None:
    for entry in STORY:
        journal.write(entry)
    journal.sync()
    assert journal.entries() == STORY


def test_entries_are_seen_before_they_are_synced(journal: Journal) -> None:
    journal.write(STORY[0])
    assert journal.entries() == STORY[:1]


def test_a_rewrite_replaces_everything_and_writing_goes_on_behind_it(journal: Journal) -> None:
    for entry in STORY:
        journal.write(entry)
    journal.rewrite(STORY[:1])
    journal.write(STORY[1])
    journal.sync()
    assert journal.entries() == STORY[:2]


def test_syncing_without_anything_written_is_allowed(journal: Journal) -> None:
    journal.sync()
    journal.sync()
    assert journal.entries() == ()


def test_threads_lose_nothing_and_each_keeps_its_order(journal: Journal) -> None:
    def writer(number: int) -> None:
        for item in range(40):
            journal.write(Reported(f"{number}/{item}"))
            journal.sync()

    threads = [Thread(target=writer, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = [entry.key for entry in journal.entries() if isinstance(entry, Reported)]
    for number in range(6):
        mine = [key for key in written if key.startswith(f"{number}/")]
        assert mine == [f"{number}/{item}" for item in range(40)]


def test_a_compacted_journal_adds_up_to_the_same(journal: Journal) -> None:
    owed = instruction("destroy", fence=4)
    for entry in (*STORY, Accepted(4.0, owed)):
        journal.write(entry)
    before = Ledger(journal.entries())
    kept = Keeping(replies=100, replies_s=1_000, fences_s=1_000)
    journal.rewrite(before.compacted(10.0, kept, present=()))
    after = Ledger(journal.entries())
    assert after.owed() == before.owed() == (owed,)
    assert after.unreported() == before.unreported() == ()
    assert after.done_fences() == before.done_fences() == {"other": 8, SPAWN.instance_id: 3}
    for item in (SPAWN, owed, instruction("spawn", fence=2), instruction("spawn", fence=5)):
        assert after.judge(item) == before.judge(item)
