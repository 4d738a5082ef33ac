"""Moves and whatever else failed: what each side holds, and what is taken up again."""

from __future__ import annotations

from conductor.processes.embedded.embedded_system import Embedded
from conductor.store.open_store import open_store
from tests.cli.running import Cli
from tests.cli.test_lifecycle import built


def moved(here: Cli, name: str, *arguments: str) -> str:
    """Ask for a move, wait for it, and return its operation's id."""
    asked = here(*arguments, name, "--wait")
    assert asked.code == 0, asked.err
    return asked.out.strip()


def replays(here: Cli) -> set[str]:
    """Return the operations that `--all` would take up."""
    return {row["old"] for row in here("migrations", "replay", "--all", "--dry-run").json}


def test_all_takes_up_the_last_of_each_chain_of_replays(stocked: Cli) -> None:
    huge = ("--vcpus", 2, "--memory-mb", 900_000)
    assert stocked("flavors", "create", "huge", *huge).code == 0
    build = stocked("build", "--flavor", "huge", "--image", "cirros", "--wait")
    assert build.code == 3
    assert build.out.strip() not in replays(stocked), "a build is no move"
    built(stocked, "grows")
    failed = stocked("resize", "--flavor", "huge", "grows", "--wait")
    assert failed.code == 3
    first = failed.out.strip()
    assert first in replays(stocked)
    again = stocked("migrations", "replay", first, "--wait")
    assert again.code == 3, again.err
    assert "lack" in again.err, again.err
    assert replays(stocked) & {first, again.out.strip()} == {again.out.strip()}
    assert stocked("delete", "grows", "--wait").code == 0


def test_asking_what_would_become_of_it_does_not_say_that_it_was_done(stocked: Cli) -> None:
    operation_id = built(stocked, "asked-only")
    asked = stocked("migrations", "replay", operation_id, "--dry-run", "-o", "json")
    assert asked.json[0]["outcome"].startswith("done: ")
    assert asked.err == "1 of 1 looked at\n"
    asking = stocked("operations", "list", "--kind", "replay_operation").json
    assert (asking[-1]["id"], asking[-1]["replay_of"]) == (asked.json[0]["new"], operation_id)
    assert stocked("delete", "asked-only", "--wait").code == 0


def test_moves_are_listed_by_kinds_that_there_are(stocked: Cli) -> None:
    assert stocked("migrations", "list", "--kind", "Live-Migration").code == 0
    wrong = stocked("migrations", "list", "--kind", "live")
    assert wrong.code == 2
    assert wrong.err.startswith("error: kind is live: should be one of migration, ")


def test_what_a_resize_on_its_own_host_holds_there_is_both_sizes(stocked: Cli) -> None:
    built(stocked, "here", "--host", "beta")
    size = ("--vcpus", 1, "--memory-mb", 700)
    assert stocked("flavors", "create", "other-size", *size).code == 0
    before = stocked("instances", "show", "here").json["flavor"]["memory_mb"]
    operation_id = moved(stocked, "here", "resize", "--flavor", "other-size", "--host", "beta")
    shown = stocked("migrations", "show", operation_id).json
    assert (shown["source"], shown["target"]) == ("beta", "beta")
    assert shown["held"]["beta"]["MEMORY_MB"] == before + 700
    assert stocked("delete", "here", "--wait").code == 0


def test_what_a_message_can_ask_of_a_move_its_command_can_ask_too(stocked: Cli) -> None:
    size = ("--vcpus", 1, "--memory-mb", 128, "--root-gb", 1)
    assert stocked("flavors", "create", "with-disk", *size).code == 0
    order = ("--flavor", "with-disk", "--image", "cirros", "--name", "both", "--host", "beta")
    assert stocked("build", *order, "--wait").code == 0
    left_behind = stocked("live-migrate", "both", "--no-block-migration", "--wait")
    assert left_behind.code == 2
    assert "block_migration is false: the disk is on beta alone" in left_behind.err
    assert stocked("live-migrate", "both", "--block-migration", "--wait").code == 0
    assert stocked("evacuate", "both", "--force", "--wait").code == 2
    assert stocked("delete", "both", "--wait").code == 0


def test_every_verb_takes_a_deadline_and_refuses_names_that_nobody_has_before_it_asks(
    stocked: Cli, system: Embedded
) -> None:
    built(stocked, "checked")
    with open_store(system.settings.store_url).read() as uow:
        before = uow.operations.count(parent_id=None)
    for verb, rule in (
        (("resize", "--flavor", "nobodys"), "flavor is nobodys: no such flavor"),
        (("rebuild", "--image", "nobodys"), "image is nobodys: no such image"),
        (("migrate", "--host", "nobodys"), "host is nobodys: no such host"),
        (("live-migrate", "--host", "nobodys"), "host is nobodys: no such host"),
        (("evacuate", "--host", "nobodys"), "host is nobodys: no such host"),
        (("unshelve", "--host", "nobodys"), "host is nobodys: no such host"),
    ):
        refused = stocked(*verb, "checked", "--deadline", 60)
        assert (refused.code, refused.out, refused.err) == (2, "", f"error: {rule}\n")
    with open_store(system.settings.store_url).read() as uow:
        assert uow.operations.count(parent_id=None) == before
    for verb in ("confirm", "revert", "shelve"):
        assert "--deadline" in stocked(verb, "--help").out
    assert stocked("delete", "checked", "--wait").code == 0
