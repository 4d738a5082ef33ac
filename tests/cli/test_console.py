"""What instances write to their consoles, as operators read it."""

from __future__ import annotations

from tests.cli.running import Cli
from tests.cli.test_lifecycle import built


def test_the_console_of_an_instance_is_printed(stocked: Cli) -> None:
    built(stocked, "talker")
    logged = stocked("instances", "console-log", "talker", "-o", "json")
    assert logged.code == 0, logged.err
    assert logged.json["text"] == "talker is running"
    assert stocked("instances", "console-log", "talker", "-o", "table").out == "talker is running\n"
    where = stocked("instances", "console", "talker").json
    assert where["host"] == logged.json["host"]


def test_an_instance_without_a_host_has_no_console(stocked: Cli) -> None:
    built(stocked, "shelved")
    assert stocked("shelve", "shelved", "--offload", "--wait").code == 0
    refused = stocked("instances", "console-log", "shelved")
    assert refused.code == 2
    assert "on no host" in refused.err
    assert stocked("instances", "console", "shelved").code == 2


def test_a_console_is_followed_as_text_only(stocked: Cli) -> None:
    built(stocked, "followed")
    refused = stocked("instances", "console-log", "followed", "--follow", "-o", "json")
    assert refused.code == 2
    assert "--output" in refused.err
