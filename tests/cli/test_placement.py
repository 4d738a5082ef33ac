"""`conductor placement`: what does not add up is listed, and healed only when told to."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import Consumer
from conductor.processes.embedded.embedded_system import Embedded
from conductor.store import Allocation
from tests.cli.running import Cli, one_line
from tests.environment.placement import PlacementServer

STRANGER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def orphan(system: Embedded) -> Iterator[None]:
    """Something on gamma that nobody alive holds."""
    amounts = {"MEMORY_MB": 64}
    with system.store.begin() as uow:
        host = uow.hosts.lock("gamma")
        assert host is not None
        uow.allocations.add(Allocation(STRANGER, "gamma", amounts))
        used = {**host.used, "MEMORY_MB": host.used.get("MEMORY_MB", 0) + 64}
        after = replace(host, used=used, instances=host.instances + 1, version=host.version + 1)
        uow.hosts.save(after)
    yield
    with system.store.read() as uow:
        assert uow.allocations.where(consumer_id=STRANGER) == []


def test_an_audit_of_a_healthy_system_finds_nothing(here: Cli) -> None:
    audited = here("placement", "audit")
    assert (audited.code, audited.json) == (0, [])
    assert "everything adds up" in audited.err


def test_heal_lists_first_changes_when_told_and_finds_nothing_the_second_time(
    orphan: None, here: Cli
) -> None:
    audited = here("placement", "audit")
    assert audited.code == 3
    (finding,) = audited.json
    assert (finding["code"], finding["provider"]) == ("orphan", "gamma")
    assert finding["consumer_id"] == STRANGER
    listed = here("placement", "heal")
    assert listed.code == 0
    assert [row["outcome"] for row in listed.json] == ["would be healed"]
    assert here("placement", "audit").code == 3
    healed = here("placement", "heal", "--apply")
    assert healed.code == 0, healed.err
    assert [row["outcome"] for row in healed.json] == ["healed"]
    again = here("placement", "heal", "--apply")
    assert (again.code, again.json) == (0, [])
    assert here("placement", "audit").code == 0


def test_what_was_found_reads_well_on_a_terminal(orphan: None, here: Cli) -> None:
    shown = here("placement", "audit", "-o", "table")
    assert "is gone" in shown.out
    assert here("placement", "heal", "--apply", "-o", "table").code == 0


def test_a_child_is_hung_under_a_host_asked_for_and_gone_again(here: Cli) -> None:
    created = here(
        "placement", "create", "gamma-card", "--parent", "gamma", "--inventory",
        "CUSTOM_CARD=4,reserved=1,max_unit=2", "--trait", "CUSTOM_QUICK",
    )  # fmt: skip
    assert created.code == 0, created.err
    assert created.json["inventories"]["CUSTOM_CARD"]["max_unit"] == 2
    listed = here("placement", "list", "--in-tree", "gamma").json
    assert [(row["name"], row["depth"]) for row in listed] == [("gamma", 0), ("gamma-card", 1)]
    ask = ("--ask", "resources:VCPU=1", "--ask", "resources1:CUSTOM_CARD=2")
    found = here("placement", "candidates", *ask, "--ask", "trait1:CUSTOM_QUICK=required")
    assert found.code == 0, found.err
    (only,) = found.json
    assert only["root"] == "gamma"
    assert only["allocations"]["gamma-card"] == {"CUSTOM_CARD": 2}
    too_many = here("placement", "candidates", "--ask", "resources1:CUSTOM_CARD=3")
    assert (too_many.code, too_many.json) == (3, [])
    again = here("placement", "create", "gamma-card", "--parent", "gamma")
    assert again.code == 2
    assert "gamma-card" in again.err
    changed = here("placement", "set", "gamma-card", "--inventory", "CUSTOM_CARD=1")
    assert changed.json["traits"] == ["CUSTOM_QUICK"]
    assert here("placement", "delete", "gamma-card").code == 0
    assert here("placement", "show", "gamma-card").code == 2


def test_traits_without_a_suffix_are_the_hosts_as_in_a_build(here: Cli) -> None:
    card = ("--inventory", "CUSTOM_CARD=4", "--trait", "CUSTOM_QUICK")
    assert here("placement", "create", "gamma-card", "--parent", "gamma", *card).code == 0
    ask = ("--ask", "resources1:CUSTOM_CARD=1", "--ask")
    assert here("placement", "candidates", *ask, "trait1:CUSTOM_QUICK=required").code == 0
    assert here("placement", "candidates", *ask, "trait:CUSTOM_QUICK=forbidden").code == 0
    assert here("placement", "candidates", *ask, "trait:CUSTOM_QUICK=required").code == 3
    assert here("placement", "delete", "gamma-card").code == 0


def test_what_nobody_can_heal_is_not_said_to_be_healed_and_a_user_is_named(
    system: Embedded, here: Cli
) -> None:
    made = here("placement", "create", "gamma-card", "--inventory", "CUSTOM_CARD=4")
    with system.store.begin() as uow:
        held = {made.json["id"]: {"CUSTOM_CARD": 3}}
        StorePlacement(uow).write([Consumer(STRANGER, held, "p", "u", "backup")])
    used = here("placement", "delete", "gamma-card")
    assert (used.code, STRANGER in used.err) == (2, True)
    assert here("placement", "set", "gamma-card", "--inventory", "CUSTOM_CARD=1").code == 0
    (listed,) = here("placement", "heal").json
    assert (listed["code"], listed["healable"]) == ("over_committed", False)
    assert listed["outcome"].startswith("left")
    with system.store.begin() as uow:
        placement = StorePlacement(uow)
        placement.write([replace(placement.consumer(STRANGER), allocations={})])
    assert here("placement", "delete", "gamma-card").code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("create", "x", "--parent", "nobody"), "nobody"),
        (("create", "x", "--inventory", "CUSTOM_X"), "inventory"),
        (("create", "x", "--inventory", "CUSTOM_X=many"), "many"),
        (("create", "x", "--inventory", "CUSTOM_X=0"), "total"),
        (("create", "x", "--inventory", "CUSTOM_X=-5"), "from 0 to 2147483647"),
        (("create", "x", "--inventory", "CUSTOM_X=99999999999"), "from 0 to 2147483647"),
        (("create", ""), "name is ''"),
        (("create", "two\nlines"), "name is 'two\\nlines'"),
        (("create", "\x1b[31mred"), "printable"),
        (("create", " x"), "name is ' x'"),
        (("create", "x" * 201), "1 to 200"),
        (("create", "x", "--inventory", "CUSTOM_X=1,colour=red"), "colour=red"),
        (("create", "x", "--inventory", "CARDS=1"), "CARDS"),
        (("create", "x", "--trait", "QUICK"), "QUICK"),
        (("create", "x", "--aggregate", "rack-1"), "rack-1"),
        (("set", "gamma", "--inventory", "VCPU=1000"), "reports these itself"),
        (("delete", "gamma"), "gamma"),
        (("show", "nobody"), "nobody"),
        (("candidates", "--ask", "resources:GOLD=1"), "GOLD"),
        (("candidates", "--ask", "resource1:CUSTOM_X=1"), "ask is resource1:CUSTOM_X"),
        (("candidates", "--ask", "trait:CUSTOM_QUICK=required"), "no amount"),
        (("candidates", "--ask", "resources:VCPU=0"), "no amount"),
        (("list", "--in-tree", "nobody"), "nobody"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line_and_leaves_nothing(
    here: Cli, arguments: tuple[str, ...], named: str
) -> None:
    refused = here("placement", *arguments)
    assert refused.code == 2, refused
    assert named in refused.err
    assert one_line(refused.err)
    assert [row["name"] for row in here("placement", "list").json] == ["alpha", "beta", "gamma"]


def test_what_a_placement_server_does_not_know_is_found_told_and_then_known(
    stocked: Cli, placement_server: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = stocked("build", "--flavor", "small", "--image", "cirros", "--wait")
    assert built.code == 0, built.err
    url = placement_server.url.replace("://", "://admin@")
    monkeypatch.setenv("CONDUCTOR_PLACEMENT_URL", url)
    audited = stocked("placement", "audit")
    assert audited.code == 3
    assert {row["code"] for row in audited.json} == {"server"}
    listed = stocked("placement", "heal")
    assert {row["outcome"] for row in listed.json} == {"would be healed"}
    assert stocked("placement", "audit").code == 3
    healed = stocked("placement", "heal", "--apply")
    assert healed.code == 0, healed.err
    assert {row["outcome"] for row in healed.json} == {"healed"}
    again = stocked("placement", "heal", "--apply")
    assert (again.code, again.json) == (0, [])
    for row in stocked("instances", "list").json:
        stocked("delete", row["id"], "--wait")
