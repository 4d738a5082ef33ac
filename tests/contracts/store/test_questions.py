"""The questions that only one table answers."""

from dataclasses import replace
from typing import Any

import pytest

from conductor.store import Heartbeat, Store, Tally, UnitOfWork, Versioned
from models.hardware import Flavor, HostTopology, Image
from models.hardware.accounting import without_use
from models.lifecycle import ENDED, InstanceState, OperationState
from tests.contracts.store import records
from tests.contracts.store.conftest import Opener


def test_overdue_operations_come_longest_overdue_first(store: Store) -> None:
    with store.begin() as uow:
        for name, wake_at in (("late", 5.0), ("latest", 1.0), ("due", 10.0), ("not yet", 10.5)):
            uow.operations.add(records.an_operation(name, wake_at=wake_at))
        uow.operations.add(records.an_operation("never"))
    with store.begin() as uow:
        assert uow.operations.overdue(10.0, 10) == ["latest", "late", "due"]
        assert uow.operations.overdue(10.0, 2) == ["latest", "late"]
        uow.operations.save(records.an_operation("latest", wake_at=20.0))
        assert uow.operations.overdue(10.0, 10) == ["late", "due"]


def test_who_is_waited_for_is_counted_as_the_reader_sees_it(store: Store) -> None:
    with store.begin() as uow:
        for name, waiting_on in (("a", "compute:h"), ("b", "compute:h"), ("c", "x"), ("d", None)):
            uow.operations.add(records.an_operation(name, waiting_on=waiting_on))
        assert uow.operations.count_waiting_on() == {"compute:h": 2, "x": 1}
    with store.read() as reading:
        assert reading.operations.count_waiting_on() == {"compute:h": 2, "x": 1}
        with store.begin() as uow:
            uow.operations.save(records.an_operation("a", waiting_on="compute:k"))
            uow.operations.drop("c")
            assert uow.operations.count_waiting_on() == {"compute:h": 1, "compute:k": 1}
        assert reading.operations.count_waiting_on() == {"compute:h": 2, "x": 1}
    with store.read() as uow:
        assert uow.operations.count_waiting_on() == {"compute:h": 1, "compute:k": 1}


def test_asks_that_are_out_come_oldest_first_and_no_others(store: Store) -> None:
    waits = {"old": "compute:h", "older": "scheduler", "young": "compute:h", "paused": "pause"}
    asked = {"old": 2.0, "older": 1.0, "young": 9.0, "paused": 1.0}
    with store.begin() as uow:
        for name, waiting_on in waits.items():
            record = records.an_operation(name, waiting_on=waiting_on, asked_at=asked[name])
            uow.operations.add(record)
        uow.operations.add(records.an_operation("ready", waiting_on=None, asked_at=1.0))
        ended = {"state": OperationState.FAILED, "ended_at": 3.0, "waiting_on": "compute:h"}
        uow.operations.add(records.an_operation("ended", asked_at=1.0, **ended))
    with store.read() as uow:
        assert [operation.id for operation in uow.operations.unanswered(5.0, 10)] == [
            "older",
            "old",
        ]
        assert [operation.id for operation in uow.operations.unanswered(5.0, 1)] == ["older"]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_operation_is_never_overdue(store: Store, state: OperationState) -> None:
    with store.begin() as uow:
        uow.operations.add(records.an_operation(wake_at=1.0, state=state))
        assert uow.operations.overdue(10.0, 10) == []


def test_what_lives_is_counted_by_kind_state_and_what_it_waits_for(store: Store) -> None:
    at = {"a": 3.0, "b": 2.0, "c": 9.0, "stuck": 4.0}
    waits = {"a": "compute:h", "b": "compute:h"}
    with store.begin() as uow:
        for name, created_at in at.items():
            state = OperationState.STUCK if name == "stuck" else OperationState.DISPATCHED
            uow.operations.add(
                records.an_operation(
                    name, state=state, created_at=created_at, waiting_on=waits.get(name)
                )
            )
        for state in sorted(ENDED - {OperationState.STUCK}):
            uow.operations.add(records.an_operation(state, state=state))
        kind = records.an_operation().kind
        expected = {
            Tally(kind, OperationState.DISPATCHED, "compute:h", 2, 2.0),
            Tally(kind, OperationState.DISPATCHED, None, 1, 9.0),
            Tally(kind, OperationState.STUCK, None, 1, 4.0),
        }
        assert set(uow.operations.census()) == expected
    with store.read() as uow:
        assert set(uow.operations.census()) == expected


def test_the_outbox_says_since_when_its_oldest_message_waits(store: Store) -> None:
    with store.begin() as uow:
        assert uow.outbox.oldest_at() is None
        for name, created_at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
            uow.outbox.put(records.an_outbox_row(name, created_at=created_at))
        assert uow.outbox.oldest_at() == 1.0
        uow.outbox.drop_many(["a"])
        assert uow.outbox.oldest_at() == 2.0


def test_operations_that_ended_lately_come_latest_first_as_the_reader_sees_them(
    store: Store,
) -> None:
    with store.begin() as uow:
        for name, ended_at in (("old", 1.0), ("edge", 2.0), ("late", 3.0), ("running", None)):
            uow.operations.add(records.an_operation(name, ended_at=ended_at))
        assert uow.operations.ended_since(2.0, 10) == ["late", "edge"]
    with store.read() as reading:
        assert reading.operations.ended_since(2.0, 1) == ["late"]
        with store.begin() as uow:
            uow.operations.save(records.an_operation("running", ended_at=4.0))
            uow.operations.drop("edge")
            assert uow.operations.ended_since(2.0, 10) == ["running", "late"]
        assert reading.operations.ended_since(2.0, 10) == ["late", "edge"]


def test_ended_operations_go_with_their_events_and_decisions(store: Store) -> None:
    with store.begin() as uow:
        for name, ended_at in (("old", 1.0), ("older", 0.5), ("edge", 2.0), ("running", None)):
            uow.operations.add(records.an_operation(name, ended_at=ended_at))
            uow.events.add_many([records.an_event(name), records.an_event(name)])
            uow.decisions.add(records.a_decision(f"d-{name}", name))
    with store.begin() as uow:
        assert uow.operations.drop_ended_before(2.0, 1) == 1
        assert uow.operations.get("older") is None
        assert uow.operations.drop_ended_before(2.0, 10) == 1
        assert uow.operations.drop_ended_before(2.0, 10) == 0
        assert {operation.id for operation in uow.operations.where()} == {"edge", "running"}
        assert {event.operation_id for event in uow.events.where()} == {"edge", "running"}
        assert {decision.operation_id for decision in uow.decisions.where()} == {"edge", "running"}


def test_a_projects_use_is_the_sum_of_its_live_instances(store: Store) -> None:
    small = Flavor("small", 1, 256, root_gb=1)
    with store.begin() as uow:
        assert uow.instances.usage("p-1") == {
            "instances": 0,
            "cores": 0,
            "memory_mb": 0,
            "disk_gb": 0,
        }
        uow.instances.add(records.an_instance("a"))
        uow.instances.add(records.an_instance("b", flavor=small, state=InstanceState.ERROR))
        uow.instances.add(records.an_instance("gone", state=InstanceState.DELETED))
        uow.instances.add(records.an_instance("foreign", project_id="p-2"))
    with store.begin() as uow:
        # Root and ephemeral disk, and 1,500 MiB of swap that take two GiB.
        assert uow.instances.usage("p-1") == {
            "instances": 2,
            "cores": 3,
            "memory_mb": 768,
            "disk_gb": 18,
        }
        resized = uow.instances.lock("b")
        assert resized is not None
        uow.instances.save(replace(resized, flavor=records.FLAVOR))
        assert uow.instances.usage("p-1")["cores"] == 4


def test_use_is_told_by_user_and_by_kind_of_instance(store: Store) -> None:
    small, image = Flavor("small", 1, 256), Image("i", properties={"hw_cpu_policy": "dedicated"})
    with store.begin() as uow:
        assert uow.instances.kinds("p-1") == []
        uow.instances.add(records.an_instance("a", flavor=small, image=image, user_id="ann"))
        uow.instances.add(records.an_instance("b", flavor=small, image=image, user_id="bob"))
        uow.instances.add(records.an_instance("c", flavor=small, image=None, user_id="ann"))
        gone = records.an_instance("d", flavor=small, state=InstanceState.DELETED, user_id="ann")
        uow.instances.add(gone)
        uow.instances.add(records.an_instance("e", flavor=small, project_id="p-2", user_id="ann"))
    with store.read() as uow:
        assert uow.instances.usage("p-1", "ann")["cores"] == 2
        assert uow.instances.usage("p-1", "nobody")["instances"] == 0
        kinds = uow.instances.kinds("p-1")
        assert sorted(count for _, _, count in kinds) == [1, 2]
        assert (small, image, 2) in kinds
        of_ann = uow.instances.kinds("p-1", "ann")
        assert len(of_ann) == 2
        assert (small, None, 1) in of_ann


def test_a_groups_hosts_are_counted_by_live_members_placed_there(store: Store) -> None:
    with store.begin() as uow:
        uow.instances.add(records.an_instance("a", group="g", host="h-1"))
        uow.instances.add(records.an_instance("b", group="g", host="h-1"))
        uow.instances.add(records.an_instance("c", group="g", host="h-2"))
        uow.instances.add(records.an_instance("unplaced", group="g"))
        uow.instances.add(records.an_instance("other", group="g-2", host="h-3"))
        gone = records.an_instance("d", group="g", host="h-4", state=InstanceState.DELETED)
        uow.instances.add(gone)
        assert uow.instances.hosts_of_group("g") == {"h-1": 2, "h-2": 1}
        assert uow.instances.hosts_of_group("nobody's") == {}


def test_many_instances_are_locked_in_ascending_order(store: Store) -> None:
    with store.begin() as uow:
        uow.instances.add_many([records.an_instance(name) for name in "cab"])
        locked = uow.instances.lock_many(["c", "a", "unknown", "a"])
        assert list(locked) == ["a", "c"]
        assert locked["a"] == records.an_instance("a")
        assert uow.instances.lock_many([]) == {}


def test_instances_go_some_time_after_they_were_deleted(store: Store) -> None:
    with store.begin() as uow:
        for name, deleted_at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
            deleted = records.an_instance(name, state=InstanceState.DELETED, deleted_at=deleted_at)
            uow.instances.add(deleted)
        uow.instances.add(records.an_instance("live"))
        assert uow.instances.drop_deleted_before(3.0, 1) == 1
        assert [instance.id for instance in uow.instances.where()] == ["b", "c", "live"]
        assert uow.instances.drop_deleted_before(3.0, 10) == 1
        assert uow.instances.drop_deleted_before(3.0, 10) == 0


FOLLOWED = {
    "hosts": lambda name, version: records.a_host(name, version=version),
    "providers": lambda name, version: records.a_provider(name, generation=version),
}


@pytest.mark.parametrize("table", FOLLOWED)
def test_who_follows_changes_knows_them_all(opener: Opener, table: str) -> None:
    made = FOLLOWED[table]
    writer, reader = opener(), opener()

    def rows(uow: UnitOfWork) -> Versioned[Any]:
        followed: Versioned[Any] = getattr(uow, table)
        return followed

    known: dict[str, int] = {}
    mark = 0

    def follow() -> None:
        """Take over what has changed, and compare with everything."""
        nonlocal mark
        with reader.read() as uow:
            changes = rows(uow).changes(mark)
            known.update(changes.versions)
            assert known == rows(uow).versions()
        mark = changes.mark or 0

    follow()
    with writer.begin() as uow:
        rows(uow).add_many([made(name, 1) for name in ("a", "b", "c")])
    follow()
    with writer.begin() as uow:
        rows(uow).save(made("b", 2))
        assert rows(uow).save_if(made("c", 2), 1)
    follow()
    assert known == {"a": 1, "b": 2, "c": 2}
    with writer.begin() as uow:
        rows(uow).add(made("d", 1))
    follow()


def test_who_was_heard_of_long_ago_is_silent(store: Store) -> None:
    with store.begin() as uow:
        for name, kind, seen_at in (
            ("a", "compute", 1.0),
            ("b", "compute", 2.0),
            ("c", "conductor", 1.0),
        ):
            uow.heartbeats.put(Heartbeat(name, kind, seen_at))
        assert uow.heartbeats.silent("compute", 2.0) == ["a"]
        uow.heartbeats.put(Heartbeat("a", "compute", 5.0))
        assert uow.heartbeats.silent("compute", 2.0) == []
        assert sorted(uow.heartbeats.silent("compute", 9.0)) == ["a", "b"]


def test_a_host_is_saved_only_at_the_version_it_was_read(opener: Opener) -> None:
    store = opener()
    with store.begin() as uow:
        uow.hosts.add(records.a_host())
    used = records.a_host(version=2, used={"VCPU": 4})
    with store.begin() as uow:
        assert not uow.hosts.save_if(used, 7)
        assert uow.hosts.save_if(used, 1, records.a_host())
        assert uow.hosts.get(used.name) == used
        assert not uow.hosts.save_if(replace(used, version=3), 1, used)
        assert uow.hosts.get("h-1") == used
        assert not uow.hosts.save_if(records.a_host("unknown"), 1)
    with opener().begin() as uow:
        assert uow.hosts.lock("h-1") == used
        assert not uow.hosts.save_if(replace(used, version=3), 1)
        assert uow.hosts.save_if(replace(used, version=3), 2)
        assert uow.hosts.versions() == {"h-1": 3}


def test_a_host_keeps_its_hardware_and_takes_new_use(opener: Opener) -> None:
    unused = records.a_host(topology=without_use(records.TOPOLOGY))
    used = replace(unused, topology=records.TOPOLOGY, version=2)
    with opener().begin() as uow:
        uow.hosts.add_many([unused, replace(unused, name="h-2")])
    with opener().begin() as uow:
        assert uow.hosts.save_if(used, 1)
    with opener().read() as uow:
        assert uow.hosts.where() == [used, replace(unused, name="h-2")]


def test_a_host_may_come_back_with_other_hardware(opener: Opener) -> None:
    other = HostTopology((replace(records.CELLS[1], memory_mib=1_024),))
    with opener().begin() as uow:
        uow.hosts.add(records.a_host())
    with opener().begin() as uow:
        uow.hosts.save(records.a_host(topology=other))
    with opener().read() as uow:
        assert uow.hosts.get("h-1") == records.a_host(topology=other)


def test_versions_are_those_of_all_hosts(store: Store) -> None:
    with store.begin() as uow:
        assert uow.hosts.versions() == {}
        uow.hosts.add_many([records.a_host("a"), records.a_host("b", version=2**40)])
        assert uow.hosts.versions() == {"a": 1, "b": 2**40}


def test_messages_written_before_a_moment_come_oldest_first(store: Store) -> None:
    rows = [records.an_outbox_row(name, at) for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0))]
    with store.begin() as uow:
        uow.outbox.add_many(rows)
        assert [row.id for row in uow.outbox.older_than(3.0, 10)] == ["a", "b"]
        assert uow.outbox.older_than(3.0, 1) == [rows[1]]
        assert uow.outbox.older_than(1.0, 10) == []


def test_messages_that_have_left_are_dropped_together(store: Store) -> None:
    with store.begin() as uow:
        uow.outbox.add_many([records.an_outbox_row(name) for name in "abc"])
        uow.outbox.drop_many(["a", "c", "gone already"])
        uow.outbox.drop_many([])
        assert [row.id for row in uow.outbox.where()] == ["b"]


def test_dead_letters_are_dropped_by_age(store: Store) -> None:
    with store.begin() as uow:
        uow.dead_letters.add_many([records.a_dead_letter(str(at), float(at)) for at in range(4)])
        assert uow.dead_letters.drop_before(3.0, 2) == 2
        assert [dead_letter.id for dead_letter in uow.dead_letters.where()] == ["2", "3"]
        assert uow.dead_letters.drop_before(3.0, 10) == 1


def test_allocations_are_found_by_consumer_and_by_host(store: Store) -> None:
    rows = [records.an_allocation(*pair) for pair in (("a", "h1"), ("a", "h2"), ("b", "h1"))]
    with store.begin() as uow:
        uow.allocations.add_many(rows)
        assert uow.allocations.where(consumer_id="a") == rows[:2]
        assert uow.allocations.where(provider="h1") == [rows[0], rows[2]]


def test_children_are_found_by_their_parent(store: Store) -> None:
    with store.begin() as uow:
        uow.operations.add(records.an_operation("parent"))
        uow.operations.add_many(
            [records.an_operation(name, parent_id="parent") for name in ("c1", "c2")]
        )
        assert [operation.id for operation in uow.operations.where(parent_id="parent")] == [
            "c1",
            "c2",
        ]
        running = {"parent_id": "parent", "state": set(OperationState) - ENDED}
        assert uow.operations.count(**running) == 2
