"""What holds for every command: exit codes, one line, nothing but data on stdout."""

import subprocess
import sys

import pytest

from conductor import exit_codes
from conductor.cli.command_registry import MODULES
from models.errors import Broken, Conflict, HostRefused, NoValidHost, Rejected, Unreachable
from tests.cli.running import Cli, one_line

NEEDS_A_DATABASE = [
    ("operations", "list"),
    ("instances", "list"),
    ("hosts", "list"),
    ("flavors", "list"),
    ("build", "--flavor", "f", "--image", "i"),
    ("hosts", "disable", "alpha"),
]


@pytest.mark.parametrize("command", MODULES)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.code == 0
    assert command in result.out
    assert result.err == ""


def test_help_names_every_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert all(command in result.out for command in MODULES)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("hosst",), "'hosst'"),
        (("hosts", "lst"), "'lst'"),
        (("hosts", "list", "--nope"), "--nope"),
        (("hosts", "list", "-o", "yaml"), "yaml"),
        (("hosts", "show"), "HOST"),
        (("build", "--flavor", "f"), "--image"),
        (("operations", "list", "--limit", "many"), "--limit"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(
    cli: Cli, arguments: tuple[str, ...], named: str
) -> None:
    result = cli(*arguments)
    assert result.code == exit_codes.WRONG
    assert result.out == ""
    assert named in result.err
    assert one_line(result.err)


@pytest.mark.parametrize("arguments", NEEDS_A_DATABASE)
def test_without_a_database_every_command_says_so_in_one_line(
    cli: Cli, arguments: tuple[str, ...]
) -> None:
    result = cli(*arguments)
    assert result.code == exit_codes.AWAY
    assert "conductor up" in result.err
    assert one_line(result.err)
    assert result.out == ""


@pytest.mark.parametrize("arguments", [("hosts", "list"), ("fit", "--cases", "-"), ("health",)])
def test_an_unknown_setting_is_an_error_that_names_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CONDUCTOR_DATABSE_URL", "sqlite:///x")
    result = cli(*arguments)
    assert result.code == exit_codes.WRONG
    assert "CONDUCTOR_DATABSE_URL" in result.err
    assert one_line(result.err)


def test_what_kubernetes_injects_is_no_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_PORT_80_TCP_ADDR", "10.0.0.1")
    assert "CONDUCTOR_PORT" not in cli("hosts", "list").err


def test_an_unreachable_database_is_exit_code_4(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    result = cli("hosts", "list")
    assert result.code == exit_codes.AWAY
    assert one_line(result.err)


def test_a_broker_without_a_database_is_a_wrong_setting(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_BROKER_URL", "amqp://127.0.0.1:1//")
    result = cli("hosts", "list")
    assert result.code == exit_codes.WRONG
    assert "CONDUCTOR_DATABASE_URL" in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Rejected("c", "m"), 2),
        (NoValidHost("c", "m"), 3),
        (HostRefused("c", "m"), 3),
        (Unreachable("c", "m"), 4),
        (Conflict("c", "m"), 4),
        (Broken("c", "m"), 70),
        (Unreachable("database_schema", "m"), 4),
        (ZeroDivisionError("m"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    assert exit_codes.report_error(error, debug=False) == code
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_where_a_failure_came_from(cli: Cli) -> None:
    result = cli("hosts", "list", "--debug")
    assert result.code == exit_codes.AWAY
    assert "Traceback" in result.err


def test_a_message_of_several_lines_is_told_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    exit_codes.report_error(Rejected("c", "first\n  second"), debug=False)
    assert capsys.readouterr().err == "error: first second\n"


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    case = '{"id": 1}\n' * 20_000
    command = f"{sys.executable} -m conductor fit --cases - | head -1"
    done = subprocess.run(
        ["sh", "-c", command], input=case, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
