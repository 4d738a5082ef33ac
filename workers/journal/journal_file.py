"""A journal in a directory: one line an entry, checksummed, synced in groups."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from threading import Condition
from zlib import crc32

import structlog

from models.errors import Broken, ConductorError, Rejected
from workers.journal.entries import Entry, entry_from_json, entry_to_json

NAME, DRAFT, LOCK = "journal.log", "journal.draft", "journal.lock"


class FileJournal:
    """Appends to `journal.log` in a directory of its own; one process at a time.

    Threads that wait for the disk share its work: one of them syncs for all that wrote before
    it began. Opening drops a last line that a crash left half written. A journal with any other
    line that cannot be read, or that a newer version wrote and this one does not understand, is set
    aside whole, said loudly, and goes on with the lines that can.
    Raises `Rejected` when another process has the directory open (`journal_in_use`), or when it
    cannot be opened at all (`journal_unusable`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = Condition()
        self._waiting: list[bytes] = []
        self._written = self._synced = 0
        self._syncing = False
        self._failure: OSError | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory)
            self._file = _opened(directory)
        except OSError as error:
            message = f"the journal in {directory} cannot be opened: {error.strerror}"
            raise Rejected("journal_unusable", message, path=str(directory)) from error

    def entries(self) -> tuple[Entry, ...]:
        """Return everything written so far, oldest first."""
        self.sync()
        texts, _ = _read(self._directory / NAME)
        return tuple(entry_from_json(json.loads(text)) for text in texts)

    def write(self, entry: Entry) -> None:
        """Add an entry; it is durable only after the next `sync`."""
        line = _line(entry)
        with self._turn:
            self._refuse_if_failed()
            self._waiting.append(line)
            self._written += 1

    def sync(self) -> None:
        """Return when everything written before this call is durable."""
        with self._turn:
            target = self._written
            while self._syncing and self._synced < target:
                self._turn.wait()
            self._refuse_if_failed()
            if self._synced >= target:
                return
            self._syncing = True
            batch, self._waiting = b"".join(self._waiting), []
            upto = self._written
        try:
            _append(self._file, batch)
        except OSError as error:
            self._done_syncing(self._synced, error)
            raise _failed(self._directory, error) from error
        self._done_syncing(upto, None)

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace everything written so far; after a crash either all or none of it."""
        with self._turn:
            while self._syncing:
                self._turn.wait()
            self._refuse_if_failed()
            try:
                fresh = _replaced(self._directory, b"".join(map(_line, entries)))
            except OSError as error:
                self._failure = error
                raise _failed(self._directory, error) from error
            os.close(self._file)
            self._file = fresh
            self._waiting = []
            self._synced = self._written

    def close(self) -> None:
        """Sync what was written and let another process open the directory."""
        try:
            self.sync()
        finally:
            os.close(self._file)
            os.close(self._lock)

    def _done_syncing(self, upto: int, failure: OSError | None) -> None:
        with self._turn:
            self._synced = upto
            self._syncing = False
            self._failure = failure
            self._turn.notify_all()

    def _refuse_if_failed(self) -> None:
        # A failed sync may have dropped the pages it could not write, so that trying the same
        # file again would call lost data durable.
        if self._failure is not None:
            raise _failed(self._directory, self._failure)


def _locked(directory: Path) -> int:
    lock = os.open(directory / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        message = f"{directory} is in use by another worker: one worker serves one host"
        raise Rejected("journal_in_use", message, path=str(directory)) from None
    return lock


def _opened(directory: Path) -> int:
    path = directory / NAME
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    readable, damaged = _salvaged(path)
    if damaged:
        aside = _set_aside(path)
        os.close(file)
        file = _replaced(directory, b"".join(map(_checksummed, readable)))
        structlog.get_logger().error(
            "journal_damaged", set_aside=str(aside), lines_lost=damaged, lines_kept=len(readable)
        )
        return file
    _, whole = _read(path)
    os.ftruncate(file, whole)
    os.fsync(file)
    _sync_directory(directory)
    return file


def _salvaged(path: Path) -> tuple[list[bytes], int]:
    """Return the lines that can be read, and how many cannot, a torn last one apart.

    What a newer version has promised and is forgotten here, the conductor requests again.
    """
    readable: list[bytes] = []
    damaged = waiting = 0
    with path.open("rb") as lines:
        for line in lines:
            text = _checked(line)
            if text is None:
                waiting += 1
                continue
            damaged, waiting = damaged + waiting, 0
            if _is_understood(text):
                readable.append(text)
            else:
                damaged += 1
    # Garbage behind the last good line was never promised; without any good one, all is lost.
    return readable, damaged if readable or damaged else waiting


def _set_aside(path: Path) -> Path:
    """Keep a damaged journal under the first free name beside it."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        if not aside.exists():
            shutil.copyfile(path, aside)
            return aside
    raise AssertionError("numbers do not end")


def _replaced(directory: Path, content: bytes) -> int:
    draft = directory / DRAFT
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    file = os.open(draft, flags, 0o600)
    _append(file, content)
    draft.replace(directory / NAME)
    _sync_directory(directory)
    return file


def _append(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fdatasync(file)


def _sync_directory(directory: Path) -> None:
    # A new name is durable only once its directory is.
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _line(entry: Entry) -> bytes:
    return _checksummed(json.dumps(entry_to_json(entry), separators=(",", ":")).encode())


def _checksummed(text: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(text), text)


def _read(path: Path) -> tuple[list[bytes], int]:
    """Return the entries of a file as text, and the length in bytes of the part that is whole."""
    texts: list[bytes] = []
    whole = 0
    bad_at: int | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = _checked(line)
            if text is None:
                bad_at = bad_at or number
            elif bad_at is not None:
                message = f"{path} line {bad_at} is damaged, and lines behind it are not"
                raise Broken("journal_corrupt", message, path=str(path), line=bad_at)
            else:
                texts.append(text)
                whole += len(line)
    return texts, whole


def _checked(line: bytes) -> bytes | None:
    """Return the text of a line, None when the line is torn."""
    checksum, space, text = line.rstrip(b"\n").partition(b" ")
    if not (line.endswith(b"\n") and space and checksum == b"%08x" % crc32(text)):
        return None
    return text


def _is_understood(text: bytes) -> bool:
    try:
        entry_from_json(json.loads(text))
    except (ConductorError, ValueError):
        return False
    return True


def _failed(directory: Path, error: OSError) -> Broken:
    message = f"the journal in {directory} cannot be written: {error.strerror}"
    return Broken("journal_failed", message, path=str(directory))
