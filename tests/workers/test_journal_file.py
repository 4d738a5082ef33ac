"""The journal on a disk: torn lines, failing disks, two processes, and sudden ends."""

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from models.errors import Broken, Rejected
from tests.workers.world import World, instruction
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.entries import Accepted, Reported
from workers.journal.journal_file import DRAFT, LOCK, NAME, FileJournal

ONE, TWO, THREE = Reported("one"), Reported("two"), Reported("three")


def written(directory: Path, *entries: Reported) -> None:
    journal = FileJournal(directory)
    for entry in entries:
        journal.write(entry)
    journal.close()


def reopened(directory: Path) -> tuple[object, ...]:
    journal = FileJournal(directory)
    entries = journal.entries()
    journal.close()
    return entries


def test_entries_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    written(tmp_path, ONE, TWO)
    assert reopened(tmp_path) == (ONE, TWO)


def test_a_last_line_torn_at_any_byte_is_dropped_and_writing_goes_on(tmp_path: Path) -> None:
    written(tmp_path, ONE, TWO)
    whole = (tmp_path / NAME).read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        (tmp_path / NAME).write_bytes(whole[:length])
        written(tmp_path, THREE)
        assert reopened(tmp_path) == (ONE, THREE)


def test_a_tail_of_garbage_is_dropped(tmp_path: Path) -> None:
    written(tmp_path, ONE)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"\0" * 100 + b"\n\xff\xfe\n")
    written(tmp_path, TWO)
    assert reopened(tmp_path) == (ONE, TWO)


def test_a_damaged_journal_is_set_aside_and_goes_on_with_what_can_be_read(tmp_path: Path) -> None:
    written(tmp_path, ONE, TWO, THREE)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content.replace(b"two", b"tow"))
    damaged = (tmp_path / NAME).read_bytes()
    assert reopened(tmp_path) == (ONE, THREE)
    assert (tmp_path / f"{NAME}.damaged-1").read_bytes() == damaged
    assert reopened(tmp_path) == (ONE, THREE)
    assert not (tmp_path / f"{NAME}.damaged-2").exists()


def test_a_journal_of_garbage_is_set_aside_and_begins_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xff\x00garbage\n" * 5)
    assert reopened(tmp_path) == ()
    assert (tmp_path / f"{NAME}.damaged-1").exists()


@pytest.mark.parametrize(
    "text",
    [b'{"kind":"promised"}', b'{"kind":"accepted","at":1,"instruction":{"version":9}}', b"7"],
)
def test_what_a_newer_version_wrote_is_set_aside_and_the_older_one_goes_on(
    tmp_path: Path, text: bytes
) -> None:
    written(tmp_path, ONE)
    with (tmp_path / NAME).open("ab") as log:
        log.write(b"%08x %b\n" % (crc32(text), text))
    whole = (tmp_path / NAME).read_bytes()
    assert reopened(tmp_path) == (ONE,)
    assert (tmp_path / f"{NAME}.damaged-1").read_bytes() == whole


def test_a_second_worker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    with pytest.raises(Rejected) as refused:
        FileJournal(tmp_path)
    assert refused.value.code == "journal_in_use"
    journal.close()
    FileJournal(tmp_path).close()


def test_a_rewrite_that_was_cut_short_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, ONE, TWO)
    (tmp_path / DRAFT).write_bytes(b"half a dra")
    assert reopened(tmp_path) == (ONE, TWO)
    journal = FileJournal(tmp_path)
    journal.rewrite([THREE])
    journal.close()
    assert reopened(tmp_path) == (THREE,)


def test_a_full_disk_breaks_the_journal_for_good_until_it_is_opened_again(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.write(ONE)
    journal.sync()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._file)
    journal.write(TWO)
    with pytest.raises(Broken) as failed:
        journal.sync()
    assert failed.value.code == "journal_failed"
    for use in (journal.sync, lambda: journal.write(THREE), lambda: journal.rewrite([THREE])):
        with pytest.raises(Broken):
            use()
    os.close(full)
    with pytest.raises(Broken):
        journal.close()
    assert reopened(tmp_path) == (ONE,)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Rejected) as failed:
        FileJournal(tmp_path / "file" / "journal")
    assert str(tmp_path / "file") in failed.value.message


def test_an_agent_goes_on_where_a_killed_process_left_off(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.write(Accepted(1.0, instruction("spawn", fence=4)))
    journal.close()
    world = World(journal=FileJournal(tmp_path))
    world.agent()
    assert world.mailbox.outcomes() == ["done"]
    assert len(world.hypervisor.domains()) == 1


LIFE = """
import os, sys
from pathlib import Path
from tests.workers.world import HARDWARE, HOST, instruction
from workers.agent import Agent
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.journal_file import FileJournal

directory = Path(sys.argv[1])
hypervisor = SimulatedHypervisor(HARDWARE, directory / "hypervisor")
messages = []
agent = Agent(HOST, hypervisor, FileJournal(directory), messages.extend)
agent.start()
for number in range(int(sys.argv[2])):
    agent.receive(instruction("spawn", instance_id=f"vm-{number}"))
print("accepted", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_process_killed_with_signal_9_has_done_once_what_it_accepted(tmp_path: Path) -> None:
    for number in (3, 5):
        life = subprocess.run(
            [sys.executable, "-c", LIFE, str(tmp_path), str(number)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert life.returncode == -9
        assert life.stdout.splitlines()[-1] == "accepted"
    world = World(journal=FileJournal(tmp_path))
    world.hypervisor = SimulatedHypervisor(world.hardware, tmp_path / "hypervisor")
    world.agent()
    effects = (tmp_path / "hypervisor" / "effects.jsonl").read_text().splitlines()
    assert len(effects) == len(set(effects)) == 5
    assert len(world.hypervisor.domains()) == 5


@pytest.mark.parametrize("name", [NAME, LOCK])
def test_a_journal_that_cannot_be_opened_is_the_operators_to_mend(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(Rejected) as refused:
        FileJournal(tmp_path)
    assert str(tmp_path) in refused.value.message
    assert "Is a directory" in refused.value.message
