"""Looking at operations, instances and hosts: the shapes that the contract names."""

import json
import uuid

import pytest

from conductor.processes.embedded.embedded_system import Embedded
from models.lifecycle import OperationState
from tests.cli.running import Cli, one_line
from tests.cli.test_lifecycle import built


def words(text: str) -> set[str]:
    return set(text.split())


OPERATION = words(
    """id kind state step instance_id parent_id replay_of error created_at ended_at children
    events"""
)
INSTANCE = words(
    "id name state task_state power_state host flavor image placement fault project_id"
)
HOST = words("name state reason cells usage instances")
CELL = words("id socket cpuset pcpuset memory siblings mempages cpu_usage memory_usage")


def test_an_operation_has_what_the_contract_names(stocked: Cli) -> None:
    shown = stocked("operations", "show", built(stocked, "op")).json
    assert set(shown) >= OPERATION
    assert shown["state"] == "SUCCEEDED"
    assert shown["error"] is None
    assert {"at", "event", "detail"} <= set(shown["events"][0])
    child = stocked("operations", "show", shown["children"][0]).json
    assert child["parent_id"] == shown["id"]
    assert child["instance_id"] in shown["instances"]


def test_an_operation_tells_a_person_why_this_host(stocked: Cli) -> None:
    shown = stocked("operations", "show", built(stocked, "why"), "-o", "table")
    assert "of 3 hosts" in shown.out
    assert "SUCCEEDED" in shown.out


def test_a_list_holds_the_same_objects(stocked: Cli) -> None:
    operation_id = built(stocked, "listed")
    rows = stocked("operations", "list", "--kind", "build_instances").json
    assert set(rows[-1]) >= OPERATION
    assert rows[-1]["id"] == operation_id
    assert all(row["kind"] == "build_instances" for row in rows)


def test_a_list_that_is_cut_says_so_beside_the_data(stocked: Cli) -> None:
    for name in ("cut-1", "cut-2"):
        built(stocked, name)
    for listing in (("operations", "list"), ("instances", "list"), ("hosts", "list")):
        whole = stocked(*listing, "--limit", 1000, "-o", "jsonl")
        assert whole.err == ""
        cut = stocked(*listing, "--limit", 1, "-o", "jsonl")
        # By what they are: a host's heartbeat may come between the two lists.
        newest = [row.get("id", row.get("name")) for row in cut.lines]
        last = whole.lines[-1]
        assert newest == [last.get("id", last.get("name"))]
        assert one_line(cut.err)
        assert f"only the newest 1 of {len(whole.lines)} are shown: --limit" in cut.err
    for name in ("cut-1", "cut-2"):
        assert stocked("delete", name, "--wait").code == 0


def test_the_newest_are_kept_by_a_limit(stocked: Cli) -> None:
    operation_id = built(stocked, "newest")
    rows = stocked(
        "operations", "list", "--kind", "build_instances", "--limit", 1, "-o", "jsonl"
    ).lines
    assert [row["id"] for row in rows] == [operation_id]


def test_operations_are_filtered_by_host_state_and_project(stocked: Cli) -> None:
    operation_id = built(stocked, "filtered", "--host", "beta", "--project", "filters")
    for found, arguments in (
        (True, ("--host", "beta")),
        (False, ("--host", "alpha")),
        (True, ("--state", "succeeded")),
        (False, ("--state", "STUCK")),
        (True, ("--project", "filters")),
        (False, ("--project", "others")),
    ):
        rows = stocked("operations", "list", *arguments).json
        assert (operation_id in {row["id"] for row in rows}) is found, arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("operations", "list", "--state", "odd"), "state is odd"),
        (("operations", "list", "--kind", "odd"), "kind is odd"),
        (("operations", "show", "odd"), "odd"),
        (("operations", "watch", str(uuid.uuid4())), "no such operation"),
        (("operations", "cancel", str(uuid.uuid4())), "no such operation"),
        (("instances", "list", "--state", "odd"), "state is odd"),
        (("instances", "show", "odd"), "odd"),
        (("hosts", "list", "--state", "odd"), "state is odd"),
        (("hosts", "show", "odd"), "odd"),
        (("hosts", "map", "alpha", "odd"), "odd"),
        (("hosts", "enable", "odd"), "odd"),
        (("hosts", "disable", "alpha", "odd"), "odd"),
        (("hosts", "force-down", "odd"), "odd"),
        (("hosts", "remove", "odd"), "odd"),
    ],
)
def test_what_is_unknown_is_named_in_one_line(
    here: Cli, arguments: tuple[str, ...], named: str
) -> None:
    refused = here(*arguments)
    assert refused.code == 2
    assert refused.out == ""
    assert named in refused.err
    assert one_line(refused.err)


def test_watching_prints_the_story_as_lines_of_json(stocked: Cli) -> None:
    operation_id = built(stocked, "watched")
    watched = stocked("operations", "watch", operation_id, "-o", "jsonl")
    assert watched.code == 0
    events = [row["event"] for row in watched.lines]
    assert events[0] == "accepted"
    assert events[-1] == "succeeded"
    assert any(row["kind"] == "build_instance" for row in watched.lines)


def test_watching_a_failed_operation_ends_in_exit_code_3(stocked: Cli) -> None:
    asked = stocked("build", "--flavor", "monster", "--image", "cirros", "--wait")
    watched = stocked("operations", "watch", asked.out.strip(), "-o", "table")
    assert watched.code == 3
    assert one_line(watched.err)


def test_an_ended_operation_cannot_be_cancelled(stocked: Cli) -> None:
    refused = stocked("operations", "cancel", built(stocked, "ended"))
    assert refused.code == 2
    assert "has ended" in refused.err


def test_a_cancelled_operation_turns_back_soon(stocked: Cli, system: Embedded) -> None:
    """One that waits for its dead host is turned back by the reaper of the running system."""
    system.crash("gamma")
    try:
        asked = stocked(
            *("build", "--flavor", "small", "--image", "cirros", "--name", "called-back"),
            *("--host", "gamma"),
        )
        operation_id = asked.out.strip()
        child = _child_at(stocked, operation_id, "DISPATCHED")
        assert stocked("operations", "cancel", operation_id, "--reason", "enough").code == 0
    finally:
        system.restart("gamma")
    watched = stocked("operations", "watch", operation_id, "--timeout", 30, "-o", "jsonl")
    assert watched.code == 3
    assert stocked("operations", "show", child).json["state"] == "CANCELLED"


def _child_at(cli: Cli, operation_id: str, state: str) -> str:
    """Return the id of the operation's only child once it has come to `state`."""
    for _ in range(100):
        rows = cli("operations", "list", "--kind", "build_instance").json
        for row in rows:
            if row["parent_id"] == operation_id and row["state"] == state:
                return str(row["id"])
    raise AssertionError(f"no child of {operation_id} has come to {state}")


def test_an_instance_has_what_the_contract_names(stocked: Cli) -> None:
    built(stocked, "shaped", "--metadata", "a=b")
    shown = stocked("instances", "show", "shaped").json
    assert set(shown) >= INSTANCE
    assert shown["image"]["id"] == "cirros"
    assert shown["placement"] is None
    assert shown["fault"] is None
    assert shown["host"] in {"alpha", "beta", "gamma"}


def test_a_pinned_instance_shows_its_cpus(stocked: Cli) -> None:
    asked = stocked(
        *("build", "--flavor", "pinned", "--image", "cirros", "--name", "pins"),
        *("--host", "alpha", "--wait"),
    )
    assert asked.code == 0, asked.err
    cells = stocked("instances", "show", "pins").json["placement"]["cells"]
    assert len(cells[0]["cpu_pinning"]) == 2
    host = stocked("hosts", "show", "alpha").json
    pinned = {cpu for cell in host["cells"] for cpu in cell["pinned_cpus"]}
    assert set(cells[0]["cpu_pinning"].values()) <= pinned
    assert "→" in stocked("instances", "show", "pins", "-o", "table").out
    drawn = stocked("hosts", "map", "alpha")
    assert drawn.code == 0
    assert "pins" in drawn.out
    assert "NUMA cell 1" in drawn.out


def test_an_instance_in_error_shows_its_fault(stocked: Cli) -> None:
    stocked("build", "--flavor", "monster", "--image", "cirros", "--name", "faulty", "--wait")
    shown = stocked("instances", "show", "faulty").json
    assert shown["state"] == "error"
    assert {"code", "message"} <= set(shown["fault"])
    rows = stocked("instances", "list", "--state", "error").json
    assert shown["id"] in {row["id"] for row in rows}


def test_instances_are_filtered(stocked: Cli) -> None:
    built(stocked, "found", "--host", "beta", "--project", "seekers")
    for arguments in (("--host", "beta"), ("--project", "seekers"), ("--state", "ACTIVE")):
        rows = stocked("instances", "list", *arguments, "-o", "jsonl").lines
        assert "found" in {row["name"] for row in rows}, arguments
    assert stocked("instances", "list", "--project", "nobody").json == []
    assert "found" in stocked("instances", "list", "-o", "table").out


def test_a_host_has_what_the_contract_names(here: Cli) -> None:
    shown = here("hosts", "show", "alpha").json
    assert set(shown) >= HOST
    assert set(shown["cells"][0]) >= CELL
    assert {"total", "reserved", "ratio", "used"} <= set(shown["usage"]["PCPU"])
    assert (shown["state"], shown["reason"]) == ("up", None)
    assert "NUMA cells" in here("hosts", "show", "alpha", "-o", "table").out


def test_hosts_are_listed_and_filtered(here: Cli) -> None:
    assert [row["name"] for row in here("hosts", "list").json] == ["alpha", "beta", "gamma"]
    assert len(here("hosts", "list", "--state", "up").json) == 3
    assert here("hosts", "list", "--state", "degraded").json == []
    assert "beta" in here("hosts", "list", "-o", "table").out


def test_a_disabled_host_says_why_and_takes_nothing_new(stocked: Cli) -> None:
    assert stocked("hosts", "disable", "gamma", "--reason", "kernel").code == 0
    shown = stocked("hosts", "show", "gamma").json
    assert (shown["state"], shown["reason"]) == ("disabled", "kernel")
    refused = stocked(
        "build", "--flavor", "small", "--image", "cirros", "--host", "gamma", "--wait"
    )
    assert refused.code == 3
    assert stocked("hosts", "enable", "gamma").code == 0
    assert stocked("hosts", "show", "gamma").json["state"] == "up"


def test_all_named_hosts_change_or_none(here: Cli) -> None:
    assert here("hosts", "disable", "beta", "nowhere").code == 2
    assert here("hosts", "show", "beta").json["state"] == "up"


def test_a_host_that_is_forced_down_is_down_until_it_is_enabled(here: Cli) -> None:
    assert here("hosts", "force-down", "gamma", "--reason", "smoke").code == 0
    shown = here("hosts", "show", "gamma").json
    assert (shown["state"], shown["reason"]) == ("down", "smoke")
    assert here("hosts", "enable", "gamma").code == 0


def test_a_host_with_instances_is_not_removed(stocked: Cli) -> None:
    built(stocked, "holder", "--host", "beta")
    refused = stocked("hosts", "remove", "beta")
    assert refused.code == 2
    assert "still holds" in refused.err


def test_json_on_a_pipe_is_one_document(here: Cli) -> None:
    assert isinstance(json.loads(here("hosts", "list").out), list)


def test_every_state_of_an_operation_can_be_asked_for(here: Cli) -> None:
    for state in OperationState:
        assert here("operations", "list", "--state", state.value).code == 0


def test_health_of_a_running_system(here: Cli) -> None:
    result = here("health")
    assert result.code == 0
    states = {row["name"]: row["state"] for row in result.json}
    assert states == {"broker": "ok", "database": "ok", "conductors": "ok", "hosts": "ok"}
    assert "3 of 3 up" in here("health", "-o", "table").out


def test_health_without_a_database_is_exit_code_4(cli: Cli) -> None:
    result = cli("health")
    assert result.code == 4
    assert {row["name"]: row["state"] for row in result.json}["database"] == "away"


def test_health_without_a_conductor_is_exit_code_4(cli: Cli) -> None:
    assert cli("db", "upgrade").code == 0
    result = cli("health")
    assert result.code == 4
    assert {row["name"]: row["state"] for row in result.json}["conductors"] == "away"


def test_health_names_a_placement_server_that_is_away(
    here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_PLACEMENT_URL", "http://me:canary-7d@127.0.0.1:9")
    result = here("health")
    assert result.code == 4
    (found,) = [row for row in result.json if row["name"] == "placement"]
    assert (found["state"], "127.0.0.1:9" in found["detail"]) == ("away", True)
    assert "canary" not in result.out + result.err


def test_health_names_a_broker_that_is_away(
    cli: Cli, system: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_BROKER_URL", "amqp://guest:secret@127.0.0.1:1//")
    monkeypatch.setenv("CONDUCTOR_DATABASE_URL", system.settings.store_url)
    monkeypatch.setenv("CONDUCTOR_RESULT_URL", "redis://127.0.0.1:1/0")
    result = cli("health")
    assert result.code == 4
    rows = {row["name"]: row for row in result.json}
    assert rows["broker"]["state"] == "away"
    assert rows["results"]["state"] == "away"
    assert not rows["results"]["needed"]
    assert "secret" not in result.out


def test_a_request_over_a_broker_that_is_away_is_exit_code_4(
    stocked: Cli, system: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_BROKER_URL", "amqp://guest:secret@127.0.0.1:1//")
    monkeypatch.setenv("CONDUCTOR_DATABASE_URL", system.settings.store_url)
    refused = stocked("build", "--flavor", "small", "--image", "cirros")
    assert refused.code == 4
    assert one_line(refused.err)
    assert "secret" not in refused.err


def test_a_database_that_every_host_obeys_needs_no_decision(here: Cli) -> None:
    assert "every host obeys" in here("hosts", "trust-database", "--all").err
    assert here("hosts", "trust-database").code == 2
    refused = here("hosts", "trust-database", "gamma", "--yes")
    assert refused.code == 2
    assert "gamma" in refused.err


def test_no_orphans_are_listed_and_none_is_removed_unasked(here: Cli) -> None:
    assert here("instances", "orphans", "list").json == []
    guest = "9f1c2d3e-0000-4000-8000-000000000009"
    unsure = here("instances", "orphans", "destroy", guest, "--host", "beta")
    assert unsure.code == 2
    assert "--yes" in unsure.err
    refused = here("instances", "orphans", "destroy", guest, "--host", "beta", "--yes", "--wait")
    assert refused.code == 2
    assert "lists no such guest" in refused.err
