"""Deleting one, several, or all that a filter finds, and ids as far as they are typed."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.running import Cli, one_line
from tests.cli.test_lifecycle import built


def living(here: Cli) -> set[str]:
    return {row["name"] for row in here("instances", "list").json}


def test_several_are_deleted_by_name_each_by_an_operation_of_its_own(stocked: Cli) -> None:
    built(stocked, "many", "--count", 3)
    asked = stocked("delete", "many-1", "many-2", "many-3", "--wait")
    assert asked.code == 0, asked.err
    assert len({str(uuid.UUID(line)) for line in asked.out.splitlines()}) == 3
    assert not living(stocked) & {"many-1", "many-2", "many-3"}


def test_a_name_that_nobody_has_deletes_none_of_the_others(stocked: Cli) -> None:
    built(stocked, "stays")
    asked = stocked("delete", "stays", "nobody", "--wait")
    assert (asked.code, asked.out) == (2, "")
    assert asked.err == "error: instance is nobody: no instance has this id or name\n"
    assert "stays" in living(stocked)
    assert stocked("delete", "stays", "--wait").code == 0


def test_all_in_a_state_are_deleted_only_once_that_is_confirmed(stocked: Cli) -> None:
    size = ("--vcpus", 2, "--memory-mb", 800_000)
    assert stocked("flavors", "create", "too-large", *size).code == 0
    order = ("--flavor", "too-large", "--image", "cirros", "--count", 3)
    assert stocked("build", *order, "--name", "refused", "--project", "bulk", "--wait").code == 3
    chosen = ("--state", "error", "--of-project", "bulk")
    unsure = stocked("delete", *chosen)
    assert (unsure.code, unsure.out) == (2, "")
    assert "deleting 3 instances: refused-1, refused-2, refused-3: say --yes" in unsure.err
    assert "--yes" in unsure.err
    asked = stocked("delete", *chosen, "--yes", "--wait", "-o", "json")
    assert asked.code == 0, asked.err
    assert [row["state"] for row in asked.json] == ["SUCCEEDED"] * 3
    again = stocked("delete", *chosen, "--yes")
    assert (again.code, again.out) == (0, "")
    assert "nothing is deleted" in again.err


@pytest.mark.parametrize("arguments", [(), ("x", "--state", "error"), ("--yes",)])
def test_names_or_a_filter_have_to_say_which(stocked: Cli, arguments: tuple[str, ...]) -> None:
    asked = stocked("delete", *arguments)
    assert asked.code == 2
    assert "name the instances, or say which" in asked.err
    assert one_line(asked.err)


def test_an_id_is_known_by_its_beginning_as_long_as_no_other_begins_so(stocked: Cli) -> None:
    operation_id = built(stocked, "short")
    instance_id = stocked("instances", "show", "short").json["id"]
    for command, whole in (
        (("operations", "show"), operation_id),
        (("explain",), operation_id),
        (("instances", "show"), instance_id),
        (("instances", "actions"), instance_id),
    ):
        asked = stocked(*command, whole[:8])
        assert asked.code == 0, (command, asked.err)
        assert asked.json == stocked(*command, whole).json
    assert stocked("operations", "watch", operation_id[:8]).code == 0
    assert stocked("operations", "show", operation_id[:3]).code == 2
    assert stocked("live-migrate", instance_id[:8].upper(), "--wait").code == 0
    assert stocked("migrations", "list").json
    move = stocked("migrations", "list").json[-1]
    assert stocked("migrations", "show", move["id"][:8]).json["id"] == move["id"]
    assert stocked("migrations", "show", move["operation_id"][:8]).json["id"] == move["id"]
    assert stocked("delete", instance_id[:13], "--wait").code == 0


def test_a_complaint_names_what_was_typed(stocked: Cli) -> None:
    built(stocked, "typed")
    asked = stocked("start", "typed", "--wait")
    assert asked.code == 2
    assert "typed (" in asked.err, asked.err
    assert stocked("delete", "typed", "--wait").code == 0


def test_nothing_but_the_command_prints_help_and_no_empty_complaint(cli: Cli) -> None:
    for words in ((), ("instances",)):
        asked = cli(*words)
        assert "Usage: conductor" in asked.out + asked.err
        assert "error:" not in asked.err


def test_the_release_is_said(cli: Cli) -> None:
    asked = cli("--version")
    assert (asked.code, asked.err) == (0, "")
    assert asked.out.startswith("conductor ")
    assert one_line(asked.out)


def test_candidates_that_there_are_none_of_are_said_to_be_none(stocked: Cli) -> None:
    asked = stocked("placement", "candidates", "--ask", "resources:VCPU=2000000")
    assert asked.code == 3
    assert "no providers can serve this" in asked.err


def test_an_operation_of_many_prints_how_its_children_stand_not_all_their_ids(
    stocked: Cli,
) -> None:
    operation_id = built(stocked, "crowd", "--count", 6)
    children = stocked("operations", "show", operation_id).json["children"]
    shown = stocked("operations", "show", operation_id, "-o", "table").out
    assert "6: 6 SUCCEEDED" in shown
    assert not any(child in shown for child in children)
    names = [f"crowd-{number}" for number in range(1, 7)]
    assert stocked("delete", *names, "--wait").code == 0


def test_every_hosts_verdict_says_that_it_is_of_today(stocked: Cli) -> None:
    operation_id = built(stocked, "explained")
    shown = stocked("explain", operation_id, "--full", "-o", "table").out
    assert "on the fleet as it is now, not as it was when it was decided" in shown
    assert stocked("explain", operation_id, "--full").json["full_at"]
    assert stocked("delete", "explained", "--wait").code == 0
