"""`conductor placement`: what does not add up is listed, and healed only when told to."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from conductor.cli.embedded import Embedded
from conductor.store.records import Allocation
from tests.cli.running import Cli

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
    assert [each["outcome"] for each in listed.json] == ["would be healed"]
    assert here("placement", "audit").code == 3
    healed = here("placement", "heal", "--apply")
    assert healed.code == 0, healed.err
    assert [each["outcome"] for each in healed.json] == ["healed"]
    again = here("placement", "heal", "--apply")
    assert (again.code, again.json) == (0, [])
    assert here("placement", "audit").code == 0


def test_what_was_found_reads_well_on_a_terminal(orphan: None, here: Cli) -> None:
    shown = here("placement", "audit", "-o", "table")
    assert "is gone" in shown.out
    assert here("placement", "heal", "--apply", "-o", "table").code == 0
