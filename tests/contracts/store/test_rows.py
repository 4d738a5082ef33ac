"""What every table promises, whatever its records."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from conductor.store import Rows, Store, UnitOfWork
from models.errors import Broken, Conflict
from models.hardware import HostTopology
from models.lifecycle import InstanceState, OperationState
from tests.contracts.store import records


class Kind(NamedTuple):
    """One table: two records of different keys, and a change to the first."""

    name: str
    first: Any
    second: Any
    change: Callable[[Any], Any]

    def rows(self, uow: UnitOfWork) -> Rows[Any]:
        rows: Rows[Any] = getattr(uow, self.name)
        return rows

    def key(self, record: Any) -> tuple[str, ...]:
        names = {
            "hosts": ("name",),
            "heartbeats": ("name",),
            "registrations": ("host",),
            "allocations": ("consumer_id", "provider"),
            "catalogue": ("kind", "name"),
        }.get(self.name, ("id",))
        return tuple(getattr(record, name) for name in names)


KINDS = (
    Kind(
        "operations",
        records.a_full_operation("a"),
        records.an_operation("b", created_at=20.0),
        lambda item: replace(item, state=OperationState.RUNNING, data={"x": 1}, undoing=False),
    ),
    Kind(
        "instances",
        records.a_full_instance("a"),
        records.an_instance("b", image=None, created_at=20.0),
        lambda item: replace(item, state=InstanceState.ACTIVE, placement=None, fault=None),
    ),
    Kind(
        "hosts",
        records.a_host("a"),
        records.a_host("b", topology=HostTopology(), inventory={}, used={}, created_at=20.0),
        lambda item: replace(item, enabled=False, disabled_reason="broken fan", version=2),
    ),
    Kind(
        "providers",
        records.a_provider("a"),
        records.a_provider("b", parent_id=None, inventories={}, traits=frozenset()),
        lambda item: replace(item, used={}, aggregates=frozenset(), generation=2),
    ),
    Kind(
        "allocations",
        records.an_allocation("a", "h-1"),
        records.an_allocation("a", "h-2"),
        lambda item: replace(item, amounts={"PCPU": 4}),
    ),
    Kind(
        "migrations",
        records.a_migration("a"),
        records.a_migration("b", target=None, target_placement=None, created_at=20.0),
        lambda item: replace(item, switched=True, progress_percent=40, error=None),
    ),
    Kind(
        "heartbeats",
        records.a_heartbeat("a"),
        records.a_heartbeat("b", seen_at=30.0),
        lambda item: replace(item, seen_at=25.0),
    ),
    Kind(
        "registrations",
        records.a_registration("a"),
        records.a_registration("b", refused=None, unexpected=(), notes=(), troubled=False),
        lambda item: replace(item, boot=4, refused={"reason": "its machine is known as c"}),
    ),
    Kind(
        "removals",
        records.a_removal("a"),
        records.a_removal("b", at=20.0),
        lambda item: replace(item, fence=9),
    ),
    Kind(
        "decisions",
        records.a_decision("a"),
        records.a_decision("b", at=20.0),
        lambda item: replace(item, host=None, detail={}),
    ),
    Kind(
        "outbox",
        records.an_outbox_row("a"),
        records.an_outbox_row("b", created_at=20.0),
        lambda item: replace(item, body={}, root_id=None),
    ),
    Kind(
        "dead_letters",
        records.a_dead_letter("a"),
        records.a_dead_letter("b", at=20.0),
        lambda item: replace(item, reason="unknown task", headers={}),
    ),
    Kind(
        "catalogue",
        records.an_entry("a", "flavor"),
        records.an_entry("a", "image", created_at=20.0),
        lambda item: replace(item, body={"vcpus": [1, {"deep": None}]}),
    ),
)

every_table = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@every_table
def test_a_record_comes_back_as_it_was_added(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.first)
        assert kind.rows(uow).get(*kind.key(kind.first)) == kind.first
    with store.read() as uow:
        assert kind.rows(uow).get(*kind.key(kind.first)) == kind.first


@every_table
def test_a_record_that_was_never_added_is_nothing(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.first)
        assert kind.rows(uow).get(*kind.key(kind.second)) is None
        assert kind.rows(uow).lock(*kind.key(kind.second)) is None


@every_table
def test_adding_a_taken_key_is_a_conflict_and_the_transaction_goes_on(
    store: Store, kind: Kind
) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.first)
    with store.begin() as uow:
        with pytest.raises(Conflict) as caught:
            kind.rows(uow).add(kind.change(kind.first))
        kind.rows(uow).add(kind.second)
    assert caught.value.code == "exists"
    with store.read() as uow:
        assert kind.rows(uow).where() == [kind.first, kind.second]


@every_table
def test_adding_many_adds_all_or_none(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.second)
        with pytest.raises(Conflict) as caught:
            kind.rows(uow).add_many([kind.first, kind.second])
        assert kind.rows(uow).where() == [kind.second]
        with pytest.raises(Conflict):
            kind.rows(uow).add_many([kind.first, kind.change(kind.first)])
        assert kind.rows(uow).drop(*kind.key(kind.second))
        kind.rows(uow).add_many([])
        kind.rows(uow).add_many([kind.second, kind.first])
    assert caught.value.code == "exists"
    with store.read() as uow:
        assert kind.rows(uow).where() == [kind.first, kind.second]


@every_table
def test_saving_replaces_the_record_of_the_same_key(store: Store, kind: Kind) -> None:
    changed = kind.change(kind.first)
    with store.begin() as uow:
        kind.rows(uow).add_many([kind.first, kind.second])
    with store.begin() as uow:
        kind.rows(uow).save(changed)
    with store.begin() as uow:
        assert kind.rows(uow).lock(*kind.key(kind.first)) == changed
        kind.rows(uow).save(kind.first)
        assert kind.rows(uow).get(*kind.key(kind.first)) == kind.first
        kind.rows(uow).save(changed)
        kind.rows(uow).save(changed)
    with store.read() as uow:
        assert kind.rows(uow).get(*kind.key(kind.first)) == changed
        assert kind.rows(uow).get(*kind.key(kind.second)) == kind.second


@every_table
def test_saving_what_is_not_there_is_broken(store: Store, kind: Kind) -> None:
    with pytest.raises(Broken) as caught, store.begin() as uow:
        kind.rows(uow).save(kind.first)
    assert caught.value.code == "missing"


@every_table
def test_saving_what_was_dropped_is_broken(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.first)
        kind.rows(uow).drop(*kind.key(kind.first))
        with pytest.raises(Broken):
            kind.rows(uow).save(kind.first)


@every_table
def test_putting_inserts_or_replaces(store: Store, kind: Kind) -> None:
    changed = kind.change(kind.first)
    with store.begin() as uow:
        kind.rows(uow).put(kind.first)
        kind.rows(uow).put(kind.second)
        kind.rows(uow).put(changed)
    with store.begin() as uow:
        kind.rows(uow).put(kind.first)
        kind.rows(uow).put(changed)
    with store.read() as uow:
        assert kind.rows(uow).get(*kind.key(kind.first)) == changed
        assert kind.rows(uow).count() == 2


@every_table
def test_dropping_says_whether_there_was_one(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add_many([kind.first, kind.second])
    with store.begin() as uow:
        assert kind.rows(uow).drop(*kind.key(kind.first))
        assert not kind.rows(uow).drop(*kind.key(kind.first))
    with store.read() as uow:
        assert kind.rows(uow).where() == [kind.second]


@every_table
def test_a_dropped_key_can_be_added_again(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.first)
        kind.rows(uow).drop(*kind.key(kind.first))
        kind.rows(uow).add(kind.change(kind.first))
        assert kind.rows(uow).where() == [kind.change(kind.first)]


@every_table
def test_records_come_oldest_first(store: Store, kind: Kind) -> None:
    with store.begin() as uow:
        kind.rows(uow).add(kind.second)
        kind.rows(uow).add(kind.first)
        assert kind.rows(uow).where() == [kind.first, kind.second]
        assert kind.rows(uow).where(limit=1) == [kind.first]
        assert kind.rows(uow).where(limit=0) == []


def test_events_are_numbered_as_they_come_and_told_in_that_order(store: Store) -> None:
    with store.begin() as uow:
        uow.events.add(records.an_event(event="first"))
        uow.events.add_many([records.an_event(event="second"), records.an_event(event="third")])
        uow.events.add(records.an_event("op-2"))
        uow.events.add(records.an_event(at=5.0, event="before all"))
    with store.read() as uow:
        story = uow.events.where(operation_id="op-1")
        assert [event.event for event in story] == ["before all", "first", "second", "third"]
        ids = [event.id for event in story[1:]]
        assert ids == sorted(ids, key=int)
        assert uow.events.get(str(story[0].id)) == story[0]
        assert replace(story[1], id=None) == records.an_event(event="first")


def test_an_event_can_be_put_saved_and_dropped_by_its_number(store: Store) -> None:
    with store.begin() as uow:
        uow.events.put(records.an_event())
        (event,) = uow.events.where()
        uow.events.save(replace(event, detail="better known now"))
        uow.events.put(replace(event, detail="best known now"))
        assert [item.detail for item in uow.events.where()] == ["best known now"]
        assert uow.events.drop(str(event.id))
        assert uow.events.count() == 0


def test_where_takes_values_lists_of_values_and_absence(store: Store) -> None:
    here = records.an_instance("a", host="h-1", group="g")
    there = records.an_instance("b", host="h-2", state=InstanceState.ACTIVE)
    nowhere = records.an_instance("c", project_id="p-2")
    with store.begin() as uow:
        uow.instances.add_many([here, there, nowhere])
    with store.read() as uow:
        where, count = uow.instances.where, uow.instances.count
        assert where(host="h-1") == [here]
        assert where(host=None) == [nowhere]
        assert where(host=["h-1", "h-2", "h-3"]) == [here, there]
        assert where(host={"h-2", None}) == [there, nowhere]
        assert where(host=(None,)) == [nowhere]
        assert where(host=[]) == []
        assert where(state=InstanceState.BUILDING) == [here, nowhere]
        assert where(state="active", host="h-2") == [there]
        assert where(state={InstanceState.ACTIVE, InstanceState.ERROR}) == [there]
        assert where(project_id="p-1", group=None) == [there]
        assert where(host="h-1", state=InstanceState.ACTIVE) == []
        assert where(project_id="p-1", limit=1) == [here]
        assert (count(), count(project_id="p-1"), count(host=[None, "h-1"])) == (3, 2, 2)
        assert (count(host=[]), count(host=None, group=None)) == (0, 1)


def test_where_takes_truth_and_numbers(store: Store) -> None:
    enabled = records.a_host("a", version=3)
    disabled = records.a_host("b", enabled=False, created_at=5.0)
    with store.begin() as uow:
        uow.hosts.add_many([enabled, disabled])
        assert uow.hosts.where(enabled=True) == [enabled]
        assert uow.hosts.where(enabled=False, forced_down=False) == [disabled]
        assert uow.hosts.where(version=[3, 4]) == [enabled]
        assert uow.hosts.where(created_at=5.0) == [enabled, disabled]


def test_where_sees_what_the_transaction_has_changed(store: Store) -> None:
    with store.begin() as uow:
        uow.instances.add_many([records.an_instance("a"), records.an_instance("b")])
    with store.begin() as uow:
        moved = records.an_instance("a", host="h-9")
        uow.instances.save(moved)
        uow.instances.drop("b")
        assert uow.instances.where(host="h-9") == [moved]
        assert uow.instances.where(host=None) == []


@pytest.mark.parametrize("field", ["flavor", "placement", "no_such_field"])
def test_where_refuses_fields_that_no_column_compares(store: Store, field: str) -> None:
    with store.begin() as uow:
        with pytest.raises(Broken) as caught:
            uow.instances.where(**{field: "x"})
        with pytest.raises(Broken):
            uow.instances.count(**{field: "x"})
    assert caught.value.code == "field_unknown"


def test_a_key_of_too_few_parts_is_broken(store: Store) -> None:
    with store.begin() as uow, pytest.raises(Broken) as caught:
        uow.allocations.get("i-1")
    assert caught.value.code == "key_invalid"


def test_json_comes_back_as_plain_lists_and_dictionaries(store: Store) -> None:
    nested = {"pair": (1, 2), "empty": (), "flag": True, "one": 1, "odd": "\0 \ud800 é \U0001f4a5"}
    plain = {**nested, "pair": [1, 2], "empty": []}
    with store.begin() as uow:
        uow.operations.add(records.an_operation(data=nested))
    with store.begin() as uow:
        read = uow.operations.lock("op-1")
        assert read is not None
        assert read.data == plain
        assert [type(value) for value in read.data.values()] == [list, list, bool, int, str]
        uow.operations.save(replace(read, data={"again": ({"a": (1,)},)}))
        assert uow.operations.where()[0].data == {"again": [{"a": [1]}]}


def test_a_nested_value_may_change_its_type_and_nothing_else(store: Store) -> None:
    with store.begin() as uow:
        uow.operations.add(records.an_operation(data={"n": 1}))
    with store.begin() as uow:
        read = uow.operations.lock("op-1")
        assert read is not None
        uow.operations.save(replace(read, data={"n": True}))
    with store.read() as uow:
        changed = uow.operations.get("op-1")
        assert changed is not None
        assert changed.data["n"] is True


def test_changing_a_dictionary_after_it_was_saved_changes_nothing(store: Store) -> None:
    data = {"step": 1}
    with store.begin() as uow:
        uow.operations.add(records.an_operation(data=data))
    data["step"] = 2
    with store.read() as uow:
        assert uow.operations.where()[0].data == {"step": 1}


def test_a_dead_letter_keeps_whatever_arrived(store: Store) -> None:
    with store.begin() as uow:
        uow.dead_letters.add(records.a_dead_letter(body="null \0, lone \ud800, fine é \U0001f4a5"))
        (kept,) = uow.dead_letters.where()
        assert kept.body == "null \ufffd, lone ?, fine é \U0001f4a5"


def test_names_are_sorted_as_python_sorts_them(store: Store) -> None:
    names = ["a", "B", "é", "-", "Z", "_", "1", "10", "2", "a-b", "ab", "\uffff", "\U0001f4a5"]
    with store.begin() as uow:
        uow.heartbeats.add_many([records.a_heartbeat(name) for name in names])
    with store.read() as uow:
        assert [heartbeat.name for heartbeat in uow.heartbeats.where()] == sorted(names)


def test_a_thousand_values_can_be_asked_for_at_once(store: Store) -> None:
    ids = [f"i-{number:04}" for number in range(1_000)]
    with store.begin() as uow:
        uow.instances.add_many([records.an_instance(identifier) for identifier in ids])
        assert len(uow.instances.where(id=ids)) == 1_000
        assert list(uow.instances.lock_many(reversed(ids))) == ids
