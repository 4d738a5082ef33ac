"""What the table of providers promises beside what every table does."""

from dataclasses import replace

import pytest

from conductor.store import Inventory, Store
from models.errors import Conflict
from tests.contracts.store import records
from tests.contracts.store.conftest import Opener


def test_a_provider_of_a_taken_name_is_a_conflict_and_the_transaction_goes_on(
    store: Store,
) -> None:
    first, second = records.a_provider("a", name="gpu"), records.a_provider("b", name="gpu")
    with store.begin() as uow:
        uow.providers.add(first)
        with pytest.raises(Conflict) as caught:
            uow.providers.add(second)
        third = records.a_provider("c", name="nic")
        with pytest.raises(Conflict):
            uow.providers.add_many([third, second])
        with pytest.raises(Conflict):
            uow.providers.add_many([third, replace(third, id="d")])
        uow.providers.add(third)
    assert caught.value.code == "exists"
    with store.read() as uow:
        assert uow.providers.where() == [first, third]
        assert uow.providers.where(name="gpu") == [first]


@pytest.mark.parametrize(
    "inventory",
    [
        Inventory(8),
        Inventory(8, 1, 0.1),
        Inventory(8, max_unit=4),
        Inventory(8, min_unit=2),
        Inventory(8, step_size=2),
        Inventory(8, 1, 1.5, 2, 4, 2),
    ],
)
def test_an_inventory_comes_back_whatever_of_it_is_usual(
    store: Store, inventory: Inventory
) -> None:
    with store.begin() as uow:
        uow.providers.add(records.a_provider(inventories={"VGPU": inventory}))
    with store.read() as uow:
        (read,) = uow.providers.where()
        assert read.inventories == {"VGPU": inventory}


def test_changes_of_hosts_are_none_of_providers(store: Store) -> None:
    with store.begin() as uow:
        uow.hosts.add(records.a_host("a"))
        uow.providers.add(records.a_provider("b"))
    with store.read() as uow:
        assert uow.hosts.changes(0).versions == {"a": 1}
        assert uow.providers.changes(0).versions == {"b": 0}


def test_a_provider_is_saved_only_at_the_generation_it_was_read(opener: Opener) -> None:
    store, before = opener(), records.a_provider("p", generation=4)
    with store.begin() as uow:
        uow.providers.add(before)
    used = replace(before, used={"VGPU": 4}, generation=5)
    with store.begin() as uow:
        assert not uow.providers.save_if(used, 3)
        assert uow.providers.save_if(used, 4, before)
        assert not uow.providers.save_if(replace(used, generation=6), 4, used)
    with opener().begin() as uow:
        assert uow.providers.lock("p") == used
        assert not uow.providers.save_if(replace(used, generation=6), 4)
        assert uow.providers.versions() == {"p": 5}
        assert not uow.providers.save_if(replace(used, id="unknown"), 5)
