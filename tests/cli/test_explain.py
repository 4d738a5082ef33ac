"""Asking why, what if, and how many more: lines, JSON and exit codes."""

import uuid

import pytest

from tests.cli.running import Cli, one_line
from tests.cli.test_lifecycle import built


def test_a_choice_is_explained_in_a_line_and_in_json(stocked: Cli) -> None:
    operation_id = built(stocked, "explained")
    shown = stocked("explain", operation_id).json
    assert (shown["operation_id"], shown["kind"]) == (operation_id, "build_instances")
    (decision,) = shown["decisions"]
    assert shown["answer"] == decision["story"][0]
    assert shown["answer"].startswith(f"{decision['host']}, of 3 possible hosts of 3")
    assert decision["detail"]["runner_up"]["host"] != decision["host"]
    text = stocked("explain", operation_id, "-o", "table").out
    assert text.splitlines()[0] == shown["answer"]
    assert "came second" in text


def test_a_refusal_is_explained_by_what_every_host_lacked(stocked: Cli) -> None:
    big = ("flavors", "create", "explained-big", "--vcpus", 64, "--memory-mb", 256)
    assert stocked(*big).code == 0
    refused = stocked(
        *("build", "--flavor", "explained-big", "--image", "cirros"), "--wait", "--name", "big"
    )
    assert refused.code == 3
    shown = stocked("explain", refused.out.strip()).json
    assert shown["answer"].startswith("3 hosts: ")
    assert shown["decisions"][0]["host"] is None
    assert "nearest is" in shown["decisions"][0]["story"][1]


def test_all_hosts_are_judged_anew_on_request(stocked: Cli) -> None:
    operation_id = built(stocked, "judged")
    shown = stocked("explain", operation_id, "--full").json
    assert {row["host"] for row in shown["full"]} == {"alpha", "beta", "gamma"}
    assert {row["check"] for row in shown["full"]} == {"possible"}
    assert "takes it" in stocked("explain", operation_id, "--full", "-o", "table").out


def test_what_the_instance_itself_has_of_a_card_is_given_back_before_it_is_judged(
    stocked: Cli,
) -> None:
    one_card = ("--parent", "beta", "--inventory", "CUSTOM_JUDGED=1")
    assert stocked("placement", "create", "judged-card", *one_card).code == 0
    size = ("--vcpus", 1, "--memory-mb", 64, "--extra-spec", "resources1:CUSTOM_JUDGED=1")
    assert stocked("flavors", "create", "with-card", *size).code == 0
    named = ("--name", "with-card", "--image", "cirros", "--wait")
    done = stocked("build", "--flavor", "with-card", *named)
    assert done.code == 0, done.err
    first, *_ = stocked("explain", done.out.strip(), "--full").json["full"]
    assert (first["host"], first["check"]) == ("beta", "possible")
    assert stocked("delete", "with-card", "--wait").code == 0
    assert stocked("placement", "delete", "judged-card").code == 0


def test_an_operation_that_asked_for_no_host_says_so(stocked: Cli) -> None:
    built(stocked, "halted")
    stopped = stocked("stop", "halted", "--wait")
    shown = stocked("explain", stopped.out.strip()).json
    assert shown["answer"] == "stop_instance requested no host"
    assert shown["decisions"] == []


@pytest.mark.parametrize("operation_id", [str(uuid.UUID(int=7)), "odd"])
def test_an_unknown_operation_is_not_explained(stocked: Cli, operation_id: str) -> None:
    asked = stocked("explain", operation_id)
    assert asked.code == 2
    assert one_line(asked.err)


def test_what_would_happen_is_told_without_doing_it(stocked: Cli) -> None:
    before = stocked("hosts", "list").json
    asked = stocked("what-if", "--flavor", "small", "--image", "cirros", "--count", 2)
    assert asked.code == 0
    assert asked.json["fits"] is True
    assert [set(placed) >= {"host", "cells", "story"} for placed in asked.json["placed"]] == [
        True
    ] * 2
    usage = [row["usage"] for row in stocked("hosts", "list").json]
    assert usage == [row["usage"] for row in before]


def test_what_would_not_fit_is_a_no_with_its_reason(stocked: Cli) -> None:
    stocked("flavors", "create", "whole-rack", "--vcpus", 64, "--memory-mb", 256)
    asked = stocked("what-if", "--flavor", "whole-rack", "--moves")
    assert asked.code == 3
    assert asked.json["fits"] is False
    assert "no one or two moves help" in asked.json["answer"]
    text = stocked("what-if", "--flavor", "whole-rack", "-o", "table").out
    assert text.startswith("3 hosts: ")


def test_how_many_more_fit_is_counted_with_and_without_losses(stocked: Cli) -> None:
    plain = stocked("capacity", "--flavor", "small").json
    assert plain["more"] > 0
    assert plain["answer"].startswith(f"{plain['more']:,} more small fit, on 3 of 3 hosts")
    surviving = stocked("capacity", "--flavor", "small", "--survive", 1).json["survive"]
    assert surviving["hosts"] == 1
    assert 0 <= surviving["more"] < plain["more"]
    text = stocked("capacity", "--flavor", "small", "--survive", 1, "-o", "table").out
    assert "keeping headroom for the loss of 1" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("what-if", "--flavor", "odd"), "flavor is odd"),
        (("what-if", "--flavor", "small", "--image", "odd"), "image is odd"),
        (("what-if", "--flavor", "small", "--zone", "odd"), "zone is odd"),
        (("what-if", "--flavor", "small", "--host", "odd"), "host is odd"),
        (("what-if", "--flavor", "small", "--group", "odd"), "server group is odd"),
        (("capacity", "--flavor", "odd"), "flavor is odd"),
    ],
)
def test_unknown_names_are_refused_in_one_line(
    stocked: Cli, arguments: tuple[str, ...], named: str
) -> None:
    asked = stocked(*arguments)
    assert asked.code == 2
    assert one_line(asked.err)
    assert named in asked.err
