"""Build, stop, start, delete: what is printed, what is refused, which exit code follows."""

import uuid

import pytest

from conductor.processes.embedded.embedded_system import Embedded
from conductor.store import Store
from tests.cli.running import Cli, one_line


def built(cli: Cli, name: str, *more: object) -> str:
    """Build one small instance and return the operation's id."""
    asked = cli("build", "--flavor", "small", "--image", "cirros", "--name", name, "--wait", *more)
    assert asked.code == 0, asked.err
    return asked.out.strip()


def requests(store: Store) -> int:
    """Count what was asked so far, whether it has been taken up or not."""
    with store.read() as uow:
        return uow.outbox.count(queue="conductor") + uow.operations.count(parent_id=None)


def test_a_build_prints_the_operations_id_and_nothing_else_on_stdout(stocked: Cli) -> None:
    operation_id = built(stocked, "printed")
    assert str(uuid.UUID(operation_id)) == operation_id
    shown = stocked("instances", "show", "printed").json
    assert shown["state"] == "active"
    assert shown["flavor"]["name"] == "small"


def test_a_build_that_is_not_waited_for_prints_its_id_at_once(stocked: Cli) -> None:
    asked = stocked("build", "--flavor", "small", "--image", "cirros", "--name", "later")
    assert asked.code == 0
    watched = stocked("operations", "watch", asked.out.strip())
    assert watched.code == 0


def test_a_build_of_several_numbers_them(stocked: Cli) -> None:
    built(stocked, "herd", "--count", 3)
    names = [row["name"] for row in stocked("instances", "list").json]
    assert {"herd-1", "herd-2", "herd-3"} <= set(names)


def test_json_of_a_build_that_was_waited_for_is_the_operation(stocked: Cli) -> None:
    asked = stocked(
        *("build", "--flavor", "small", "--image", "CirrOS", "--name", "as-json"),
        *("--wait", "-o", "json"),
    )
    assert asked.json["state"] == "SUCCEEDED"
    assert asked.json["kind"] == "build_instances"
    assert len(asked.json["children"]) == 1


def test_json_of_a_build_that_was_not_is_its_id(stocked: Cli) -> None:
    asked = stocked(
        "build", "--flavor", "small", "--image", "cirros", "--name", "only-id", "-o", "json"
    )
    assert set(asked.json) == {"id"}
    assert stocked("operations", "watch", asked.json["id"]).code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--flavor", "nope", "--image", "cirros"), "nope"),
        (("--flavor", "small", "--image", "nope"), "nope"),
        (("--flavor", "small", "--image", "cirros", "--host", "nope"), "nope"),
        (("--flavor", "small", "--image", "cirros", "--zone", "nope"), "nope"),
        (("--flavor", "small", "--image", "cirros", "--group", "nope"), "nope"),
        (("--flavor", "small", "--image", "cirros", "--count", "0"), "count is 0"),
        (("--flavor", "small", "--image", "cirros", "--count", "1000000000"), "count"),
        (("--flavor", "small", "--image", "cirros", "--count", "many"), "--count is many"),
        (("--flavor", "small", "--image", "cirros", "--metadata", "odd"), "KEY=VALUE"),
        (("--flavor", "small", "--image", "cirros", "--name", ""), "name"),
        (("--flavor", "small", "--image", "cirros", "--deadline", "-1"), "deadline"),
    ],
)
def test_a_wrong_build_is_refused_in_one_line_and_leaves_nothing(
    stocked: Cli, system: Embedded, arguments: tuple[str, ...], named: str
) -> None:
    before = requests(system.store)
    refused = stocked("build", *arguments)
    assert refused.code == 2
    assert refused.out == ""
    assert named in refused.err
    assert one_line(refused.err)
    assert requests(system.store) == before


def test_a_build_that_no_host_can_take_ends_in_exit_code_3(stocked: Cli) -> None:
    asked = stocked("build", "--flavor", "monster", "--image", "cirros", "--name", "no", "--wait")
    assert asked.code == 3
    assert one_line(asked.err)
    assert "hosts" in asked.err
    shown = stocked("operations", "show", asked.out.strip()).json
    assert shown["error"]["code"] == "no_valid_host"


def test_waiting_longer_than_allowed_is_exit_code_4(stocked: Cli) -> None:
    asked = stocked(
        *("build", "--flavor", "small", "--image", "cirros", "--name", "hasty"),
        *("--wait", "--timeout", "0"),
    )
    assert asked.code == 4
    assert one_line(asked.err)
    assert stocked("operations", "watch", asked.out.strip()).code == 0


def test_stop_start_and_delete_by_name(stocked: Cli) -> None:
    built(stocked, "cycled")
    assert stocked("stop", "cycled", "--wait").code == 0
    assert stocked("instances", "show", "cycled").json["power_state"] == "shutdown"
    assert stocked("start", "cycled", "--wait").code == 0
    assert stocked("instances", "show", "cycled").json["state"] == "active"
    id_ = stocked("instances", "show", "cycled").json["id"]
    assert stocked("delete", "cycled", "--wait").code == 0
    assert stocked("instances", "show", "cycled").code == 2
    assert stocked("instances", "show", id_).json["state"] == "deleted"


def test_starting_what_runs_is_a_wrong_request(stocked: Cli) -> None:
    built(stocked, "running")
    refused = stocked("start", "running", "--wait")
    assert refused.code == 2
    assert "must be stopped" in refused.err
    assert one_line(refused.err)


@pytest.mark.parametrize("verb", ["delete", "start", "stop"])
def test_an_unknown_instance_is_named(stocked: Cli, verb: str) -> None:
    refused = stocked(verb, "nobody")
    assert refused.code == 2
    assert "nobody" in refused.err
    assert one_line(refused.err)


def test_a_name_that_two_have_is_no_name(stocked: Cli) -> None:
    built(stocked, "twin")
    built(stocked, "twin")
    refused = stocked("stop", "twin")
    assert refused.code == 2
    assert "use an id" in refused.err


def test_where_nothing_runs_a_request_is_refused_and_leaves_nothing(
    stocked: Cli, system: Embedded, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("CONDUCTOR_STATE_DIR", str(tmp_path))
    assert stocked("db", "upgrade").code == 0
    refused = stocked("flavors", "create", "f", "--vcpus", 1, "--memory-mb", 1)
    assert refused.code == 4
    assert "conductor up" in refused.err
    assert one_line(refused.err)
    assert stocked("operations", "list").json == []
