"""What strangers wrote is printed, and steers no terminal."""

from __future__ import annotations

import pytest

from conductor.cli import run
from conductor.cli.rendering.text_tables import cell
from conductor.exit_codes import WRONG, printable, say


def test_control_sequences_and_what_is_no_text_are_written_as_escapes() -> None:
    assert printable("a\x1b[2Jb\ud800\x07\u202e") == "a\\x1b[2Jb\\ud800\\x07\\u202e"
    assert printable("größe 1\n\t東京") == "größe 1\n\t東京"


def test_neither_tables_nor_complaints_pass_them_on(capsys: pytest.CaptureFixture[str]) -> None:
    say("host is \x1b]0;x\x07\udfff")
    assert capsys.readouterr().err == "host is \\x1b]0;x\\x07\\udfff\n"
    assert (
        "\x1b" not in cell("\x1b[31m").plain + cell(["\x1b[31m"]).plain + cell({"a": "\x1b"}).plain
    )


def test_an_argument_that_is_no_text_is_refused_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["instances", "show", "vm\udcff"], ["fit", "--cases", "\udcff"]):
        assert run(words) == WRONG
        assert "\\udcff is no text: should be UTF-8" in capsys.readouterr().err
