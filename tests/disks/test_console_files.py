"""Consoles are read in parts and kept within bounds."""

from __future__ import annotations

from pathlib import Path

from workers.hypervisor.libvirt.console_files import MOST_KEPT_BYTES, bound, read_part


def test_the_end_is_read_first_and_then_what_comes(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    assert read_part(log, None, 100).text == ""
    log.write_bytes(b"one\ntwo\nthree\n")
    end = read_part(log, None, 6)
    assert end.text == "three\n"
    with log.open("ab") as file:
        file.write(b"four\n")
    more = read_part(log, end.next_offset, 100)
    assert more.text == "four\n"
    assert read_part(log, more.next_offset, 100).text == ""


def test_a_console_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"anew\n")
    assert read_part(log, 1_000_000, 100).text == "anew\n"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"\xff\xfeboot\n")
    assert read_part(log, None, 100).text == "\ufffd\ufffdboot\n"


def test_a_console_that_is_too_long_is_begun_anew_with_its_end_beside_it(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"x" * MOST_KEPT_BYTES)
    assert not bound(log)
    with log.open("ab") as writer:
        writer.write(b"last\n")
        writer.flush()
        assert bound(log)
        writer.write(b"next\n")
    assert log.read_bytes() == b"next\n"
    assert (tmp_path / "console.log.1").read_bytes().endswith(b"last\n")
    assert not bound(tmp_path / "none.log")
