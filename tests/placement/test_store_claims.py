"""Claims in our own tables: all or none, exact, under what was read; reshapes too."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from conductor.placement.local.host_claims import HostAllocation, allocate
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import (
    MIGRATION,
    Consumer,
    Reshaping,
)
from conductor.placement.request_groups import CandidateRequest, RequestGroup
from conductor.store import Inventory, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from models.errors import Broken, Conflict, NoValidHost, Rejected
from tests.placement.one_host import GPU, ROOT, a_root, hold, made, refused

# Claims


def test_a_consumer_holds_what_was_written_without_zeros(placement: StorePlacement) -> None:
    made(placement, GPU, ROOT, VGPU=Inventory(4))
    asked = {ROOT: {"VCPU": 2, "DISK_GB": 0}, GPU: {"VGPU": 0}}
    placement.write([Consumer("i", asked, "p", "ann")])
    held = placement.consumer("i")
    assert held.allocations == {ROOT: {"VCPU": 2}}
    assert (held.project_id, held.user_id, held.kind) == ("p", "ann", "instance")
    assert held.generation is not None
    assert 0 <= held.generation < 2**48
    assert placement.consumers_of(GPU) == {}


def test_what_does_not_fit_names_provider_class_need_and_have(placement: StorePlacement) -> None:
    made(placement, GPU, None, VGPU=Inventory(8, 2, 1.5))
    hold(placement, "i", {GPU: {"VGPU": 5}})
    error = refused(NoValidHost, lambda: hold(placement, "j", {GPU: {"VGPU": 5}}))
    assert error.code == "no_capacity"
    assert error.data == {"provider": GPU, "resource_class": "VGPU", "need": 5, "have": 4}
    assert placement.consumer("j") == Consumer("j")
    hold(placement, "j", {GPU: {"VGPU": 4}})


def test_a_class_that_a_provider_lacks_does_not_fit_and_one_that_nobody_has_is_unknown(
    placement: StorePlacement,
) -> None:
    made(placement, GPU, None, VGPU=Inventory(8))
    error = refused(NoValidHost, lambda: hold(placement, "i", {GPU: {"VCPU": 1}}))
    assert error.data["have"] == 0
    error = refused(Rejected, lambda: hold(placement, "i", {GPU: {"CUSTOM_X": 1}}))
    assert error.code == "resource_class_unknown"


def test_the_whole_request_is_summed_and_what_is_given_back_comes_first(
    placement: StorePlacement,
) -> None:
    made(placement, GPU, None, VGPU=Inventory(4))
    two = [Consumer(name, {GPU: {"VGPU": 3}}) for name in ("a", "b")]
    error = refused(NoValidHost, lambda: placement.write(two))
    assert error.data["need"] == 6
    placement.write(two[:1])
    held = placement.consumer("a")
    placement.write([replace(held, allocations={}), two[1]])
    assert placement.consumers_of(GPU) == {"b": {"VGPU": 3}}


@pytest.mark.parametrize("amount", [1, 3, 5])
def test_an_amount_against_the_units_of_an_inventory_is_refused(
    placement: StorePlacement, amount: int
) -> None:
    made(placement, GPU, None, VGPU=Inventory(8, min_unit=2, max_unit=4, step_size=2))
    error = refused(Rejected, lambda: hold(placement, "i", {GPU: {"VGPU": amount}}))
    assert (error.code, error.key) == ("allocation_invalid", "VGPU")
    hold(placement, "i", {GPU: {"VGPU": 4}})


def test_one_consumer_takes_at_most_max_unit(placement: StorePlacement) -> None:
    made(placement, GPU, None, VGPU=Inventory(8, max_unit=4))
    error = refused(NoValidHost, lambda: hold(placement, "i", {GPU: {"VGPU": 5}}))
    assert (error.data["need"], error.data["have"]) == (5, 4)


def test_without_a_max_unit_of_its_own_one_consumer_may_have_all(
    placement: StorePlacement,
) -> None:
    made(placement, GPU, None, VGPU=Inventory(4, 0, 2.0))
    hold(placement, "i", {GPU: {"VGPU": 8}})


@pytest.mark.parametrize(
    ("consumer", "key"),
    [
        (Consumer("i", {ROOT: {"VCPU": -1}}), "VCPU"),
        (Consumer("i", {ROOT: {"VCPU": 2**31}}), "VCPU"),
        (Consumer("i", {ROOT: {"VCPU": 1}}, kind="INSTANCE"), "kind"),
        (Consumer("i", {ROOT: {"VCPU": 1}}, kind=""), "kind"),
        (Consumer("twice", {ROOT: {"VCPU": 1}}), "consumer"),
    ],
)
def test_a_claim_that_cannot_be_is_refused_by_name(
    placement: StorePlacement, consumer: Consumer, key: str
) -> None:
    error = refused(Rejected, lambda: placement.write([Consumer("twice"), consumer]))
    assert (error.code, error.key) == ("allocation_invalid", key)


def test_a_consumer_that_changed_is_a_conflict_and_nothing_is_written(
    placement: StorePlacement,
) -> None:
    read = placement.consumer("i")
    hold(placement, "i", {ROOT: {"VCPU": 1}})
    other = Consumer("j", {ROOT: {"VCPU": 1}})
    error = refused(
        Conflict, lambda: placement.write([other, replace(read, allocations={ROOT: {"VCPU": 2}})])
    )
    assert (error.code, error.data) == ("generation_conflict", {"consumer": "i"})
    assert placement.consumers_of(ROOT) == {"i": {"VCPU": 1}}


def test_the_generation_is_the_same_exactly_while_the_same_is_held(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    assert placement.consumer("i").generation is None
    hold(placement, "i", {ROOT: {"VCPU": 1}}, project_id="p")
    first = placement.consumer("i")
    seen = {first.generation}
    for change in (
        {"allocations": {ROOT: {"VCPU": 2}}},
        {"user_id": "ann"},
        {"project_id": "q"},
        {"kind": MIGRATION},
    ):
        placement.write([replace(placement.consumer("i"), **change)])
        seen.add(placement.consumer("i").generation)
    assert len(seen) == 5
    hold(placement, "i", first.allocations, project_id="p", user_id="", kind="instance")
    assert placement.consumer("i") == first


def test_claims_that_know_nothing_of_generations_change_them(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    read = placement.consumer("i")
    known = uow.hosts.get("h1")
    assert known is not None
    assert allocate(uow, known, [HostAllocation("i", "p", None, {"VCPU": 1})])
    assert refused(Conflict, lambda: placement.write([read])).code == "generation_conflict"
    assert placement.consumer("i").allocations == {ROOT: {"VCPU": 1}}


def test_writing_what_is_held_already_changes_no_provider(placement: StorePlacement) -> None:
    gpu = made(placement, GPU, ROOT, VGPU=Inventory(4))
    hold(placement, "i", {GPU: {"VGPU": 1}, ROOT: {"VCPU": 1}})
    hold(placement, "i", {GPU: {"VGPU": 1}, ROOT: {"VCPU": 2}})
    after, root = placement.provider(GPU), placement.provider(ROOT)
    assert after is not None
    assert root is not None
    assert (after.generation, root.generation) == (gpu.generation + 1, 3)


def test_a_refused_claim_leaves_the_transaction_as_it_was(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    made(placement, GPU, ROOT, VGPU=Inventory(4))
    hold(placement, "i", {GPU: {"VGPU": 2}})
    before = (uow.hosts.where(), uow.providers.where(), uow.allocations.where())
    refused(
        NoValidHost, lambda: hold(placement, "i", {GPU: {"VGPU": 1}, ROOT: {"MEMORY_MB": 10**6}})
    )
    assert (uow.hosts.where(), uow.providers.where(), uow.allocations.where()) == before


def test_an_allocation_of_what_is_not_there_is_never_read_as_none(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    hold(placement, "i", {ROOT: {"VCPU": 1}})
    uow.hosts.drop("h1")
    with pytest.raises(Broken) as caught:
        placement.consumer("i")
    assert caught.value.code == "provider_missing"


def test_what_projects_and_users_hold_is_summed_over_all_providers(
    placement: StorePlacement,
) -> None:
    made(placement, GPU, ROOT, VGPU=Inventory(4), VCPU=Inventory(4))
    asked = {ROOT: {"VCPU": 1}, GPU: {"VGPU": 1, "VCPU": 2}}
    placement.write(
        [
            Consumer("a", asked, "p", "ann"),
            Consumer("b", {ROOT: {"VCPU": 1}}, "p", "bob"),
            Consumer("c", {ROOT: {"VCPU": 1}}, "q", "ann"),
        ]
    )
    assert placement.usages("p") == {"VCPU": 4, "VGPU": 1}
    assert placement.usages("p", "ann") == {"VCPU": 3, "VGPU": 1}
    assert placement.usages("q", "bob") == {}


# Reshapes


def test_a_host_with_consumers_is_reshaped_in_one_go(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    numa = "numa-id"
    placement.ensure_provider(numa, "h1 numa 0", ROOT)
    hold(placement, "i", {ROOT: {"VCPU": 8}})
    root = placement.provider(ROOT)
    assert root is not None
    rest = {name: has for name, has in root.inventories.items() if name != "VCPU"}
    placement.reshape(
        [
            Reshaping(ROOT, rest, root.generation),
            Reshaping(numa, {"PCPU": Inventory(8)}, 0),
        ],
        [replace(placement.consumer("i"), allocations={numa: {"PCPU": 8}})],
    )
    assert placement.consumer("i").allocations == {numa: {"PCPU": 8}}
    after = uow.hosts.get("h1")
    assert after is not None
    assert (after.version, after.instances, dict(after.used)) == (3, 0, {})
    assert "VCPU" not in after.inventory


def test_a_reshape_is_checked_against_how_it_ends(placement: StorePlacement) -> None:
    gpu = made(placement, GPU, None, VCPU=Inventory(8))
    hold(placement, "i", {GPU: {"VCPU": 8}})
    at, held = gpu.generation + 1, placement.consumer("i")
    pinned = replace(held, allocations={GPU: {"PCPU": 8}})
    short = [Reshaping(GPU, {"PCPU": Inventory(7)}, at)]
    enough = [Reshaping(GPU, {"PCPU": Inventory(8)}, at)]
    assert refused(NoValidHost, lambda: placement.reshape(short, [pinned])).data["have"] == 7
    assert refused(Rejected, lambda: placement.reshape(enough, [])).code == "inventory_in_use"
    assert placement.consumer("i") == held
    placement.reshape(enough, [pinned])
    after = placement.provider(GPU)
    assert after is not None
    assert (after.generation, dict(after.used)) == (at + 1, {"PCPU": 8})


# Candidates


def ask(**resources: int) -> CandidateRequest:
    return CandidateRequest((RequestGroup(resources=resources),))


def test_a_candidate_can_be_claimed_as_it_is(placement: StorePlacement) -> None:
    made(placement, GPU, ROOT, VGPU=Inventory(1))
    (found,) = placement.candidates(ask(VCPU=2, VGPU=1), 10).found
    assert found.allocations == {ROOT: {"VCPU": 2}, GPU: {"VGPU": 1}}
    hold(placement, "i", found.allocations)
    assert placement.candidates(ask(VGPU=1), 10).found == ()


def test_an_index_that_lives_on_does_not_see_what_was_undone() -> None:
    store, provider_index = MemoryStore(), ProviderIndex()
    with store.begin() as uow:
        uow.hosts.add(a_root("h1"))
    with suppress(ZeroDivisionError), store.begin() as uow:
        placement = StorePlacement(uow, provider_index)
        assert len(placement.candidates(ask(PCPU=4), 1).found) == 1
        hold(placement, "i", {ROOT: {"PCPU": 4}})
        assert placement.candidates(ask(PCPU=4), 1).found == ()
        raise ZeroDivisionError
    with store.begin() as uow:
        placement = StorePlacement(uow, provider_index)
        # The version that was undone is given again, with other use.
        hold(placement, "j", {ROOT: {"MEMORY_MB": 1}})
    with store.read() as uow:
        assert len(StorePlacement(uow, provider_index).candidates(ask(PCPU=4), 1).found) == 1


def test_what_only_a_host_tells_of_can_be_asked_for(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    uow.hosts.add(a_root("h2", inventory={"CUSTOM_PCI_GPU": Inventory(1)}))
    assert len(placement.candidates(ask(CUSTOM_PCI_GPU=1), 10).found) == 1
    error = refused(Rejected, lambda: placement.candidates(ask(CUSTOM_UNHEARD=1), 10))
    assert error.code == "resource_class_unknown"
