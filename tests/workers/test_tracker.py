"""The tracker refuses what the hardware contradicts, and nothing else."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import HostRefused, Rejected, Unreachable
from models.hardware import HostCell, HostTopology, PagePool, mask_of
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.internal import Reservation
from tests.workers.world import HARDWARE, OTHER_VM, VM, placement, spec
from workers.hypervisor.ports import GuestDomain, Hardware
from workers.tracker import (
    Guest,
    Tracked,
    Tracker,
    audited,
    empty,
    guest_of,
    refusal,
    usage,
    with_guest,
    without_guest,
)


def guest(name: str, placed: dict[str, object] | None = None, **more: object) -> Guest:
    return guest_of(InstanceId(name), spec(placed, **more))


def holding(*guests: Guest) -> Tracked:
    tracked = empty(HARDWARE)
    for item in guests:
        assert refusal(tracked, item) is None
        tracked = with_guest(tracked, item)
    return tracked


def code(tracked: Tracked, one: Guest) -> str | None:
    why_not = refusal(tracked, one)
    return why_not.code if why_not else None


def domain(name: str, guest_spec: GuestDefinition | None, power: str = "running") -> GuestDomain:
    return GuestDomain(InstanceId(name), power, guest_spec, "" if guest_spec else "damaged")  # type: ignore[arg-type]  # one of three


def one_cell(**more: object) -> Hardware:
    four = mask_of(range(1, 5))
    values: dict[str, object] = {
        "id": 0,
        "shared_cpus": four,
        "dedicated_cpus": four,
        "memory_mib": 4096,
    }
    return Hardware(HostTopology((HostCell(**(values | more)),)), disk_gb=10)  # type: ignore[arg-type]  # by name


def test_pins_that_another_guest_holds_are_refused_and_nothing_changes() -> None:
    tracked = with_guest(empty(one_cell()), guest("a", placement({0: 1})))
    assert code(tracked, guest("b", placement({0: 2, 1: 3}))) is None
    assert code(tracked, guest("b", placement({0: 1, 1: 4}))) == "cpu_pinning_invalid"
    assert code(tracked, guest("b", placement({0: 1, 1: 55}))) == "cpu_pinning_unknown"
    after = with_guest(tracked, guest("b", placement({0: 2, 1: 3})))
    assert after.topology.cells[0].free_cpus == mask_of([4])
    assert tracked.topology.cells[0].free_cpus == mask_of([2, 3, 4])


def test_a_guest_that_goes_gives_back_exactly_what_it_held() -> None:
    tracked = holding(guest("a", placement({0: 1}, memory=1024)))
    both = with_guest(tracked, guest("b", placement({0: 2, 1: 3}, memory=2048)))
    assert without_guest(both, InstanceId("b")) == tracked
    assert without_guest(tracked, InstanceId("unknown")) == tracked


def test_siblings_that_isolation_blocks_and_emulator_cpus_are_held_too() -> None:
    isolated = placement({0: 0}, cpuset_reserved=[2], cpuset_blocked=[1])
    tracked = holding(guest("a", isolated))
    assert code(tracked, guest("b", placement({0: 1}))) == "cpu_pinning_invalid"
    assert code(tracked, guest("b", placement({0: 2}))) == "cpu_pinning_invalid"
    assert code(tracked, guest("b", placement({0: 3}))) is None


def test_a_numa_cell_that_is_not_there_is_refused() -> None:
    assert code(holding(), guest("a", placement(host_cell=7))) == "host_cell_unknown"


def test_page_sizes_and_pages_that_are_not_there_are_refused() -> None:
    assert code(holding(), guest("a", placement(pagesize=1048576))) == "page_pool_unknown"
    assert code(holding(), guest("a", placement(memory=2048, pagesize=2048))) is None
    assert code(holding(), guest("a", placement(memory=2050, pagesize=2048))) == "pages_taken"


def test_pages_that_another_guest_holds_are_refused() -> None:
    tracked = holding(guest("a", placement(memory=1536, pagesize=2048)))
    assert code(tracked, guest("b", placement(memory=514, pagesize=2048))) == "pages_taken"
    assert code(tracked, guest("b", placement(memory=512, pagesize=2048))) is None


def test_reserved_pages_are_nobodys() -> None:
    pools = (PagePool(2048, 10, used=0, reserved=4),)
    tracked = empty(one_cell(page_pools=pools))
    assert code(tracked, guest("a", placement(memory=14, pagesize=2048))) == "pages_taken"
    assert code(tracked, guest("a", placement(memory=12, pagesize=2048))) is None


def test_shared_guests_may_over_commit_since_the_database_said_so() -> None:
    tracked = holding(*(guest(f"vm-{n}", placement(memory=2048)) for n in range(20)))
    assert code(tracked, guest("one more", placement(memory=2048))) is None
    assert code(tracked, guest("pinned", placement({0: 0}, memory=2048))) is None


def test_a_guest_never_over_commits_against_itself() -> None:
    assert code(holding(), guest("a", placement(memory=4096))) == "memory_missing"
    many = placement(cpuset=[0, 1, 2, 3, 4])
    assert code(holding(), guest("a", many, vcpus=5)) == "shared_cpus_missing"
    assert code(holding(), guest("a", memory_mib=9000)) == "host_too_small"
    assert code(holding(), guest("a", vcpus=9)) == "host_too_small"
    assert code(holding(), guest("a", disk_gb=101)) == "host_too_small"


def test_memory_of_dedicated_guests_is_real_where_a_cell_has_no_page_pools() -> None:
    tracked = with_guest(empty(one_cell()), guest("a", placement({0: 1}, memory=3000)))
    assert code(tracked, guest("b", placement({0: 2}, memory=1097))) == "memory_taken"
    assert code(tracked, guest("b", placement({0: 2}, memory=1096))) is None


def test_a_refusal_carries_its_numbers_to_the_conductor() -> None:
    why_not = refusal(holding(), guest("a", placement(memory=2050, pagesize=2048)))
    assert why_not is not None
    error = why_not.error()
    assert isinstance(error, HostRefused)
    assert error.data == {"host_cell": 0, "need": 1025, "have": 1024}


def test_powered_off_guests_count() -> None:
    tracked = audited(HARDWARE, [domain("off", spec(placement({0: 1})), "shutdown")])
    assert code(tracked, guest("b", placement({0: 1}))) == "cpu_pinning_invalid"


def test_foreign_guests_count_their_memory() -> None:
    tracked = audited(HARDWARE, [domain("orphan", spec(memory_mib=700))])
    assert usage(tracked, Reservation())["MEMORY_MB"].used == 700


def test_one_bad_domain_is_listed_and_the_others_are_counted() -> None:
    clash = domain("clash", spec(placement({0: 1}), memory_mib=300))
    tracked = audited(
        HARDWARE,
        [
            domain("unreadable", None),
            domain("first", spec(placement({0: 1}))),
            clash,
            domain("nonsense", spec({"cells": "none"}, memory_mib=200)),
            domain("last", spec(placement({0: 2}))),
        ],
    )
    assert set(tracked.degraded) == {"unreadable", "clash", "nonsense"}
    assert tracked.topology.cells[0].pinned_cpus == mask_of([1, 2])
    assert usage(tracked, Reservation())["MEMORY_MB"].used == 512 * 2 + 300 + 200
    assert without_guest(tracked, InstanceId("clash")).degraded.keys() == {"unreadable", "nonsense"}


def test_over_commit_is_a_number_of_its_own_and_nothing_is_negative() -> None:
    tracked = holding(
        *(guest(f"vm-{n}", placement(memory=2048), memory_mib=2048) for n in range(6))
    )
    numbers = usage(tracked, Reservation(memory_mib=1024, vcpus=1, disk_gb=200))
    memory = numbers["MEMORY_MB"]
    assert (memory.capacity, memory.used, memory.overcommit) == (8192, 12288, 5120)
    assert (numbers["VCPU"].used, numbers["VCPU"].overcommit) == (6, 0)
    assert (numbers["DISK_GB"].used, numbers["DISK_GB"].overcommit) == (6, 6)
    for number in numbers.values():
        assert min(number.capacity, number.reserved, number.used, number.overcommit) >= 0


def test_dedicated_cpus_are_counted_as_such() -> None:
    numbers = usage(holding(guest("a", placement({0: 0, 1: 1}))), Reservation())
    assert (numbers["PCPU"].capacity, numbers["PCPU"].used, numbers["VCPU"].used) == (8, 2, 0)


def test_a_malformed_placement_is_rejected_by_field() -> None:
    with pytest.raises(Rejected) as refused:
        guest("a", {"cells": [{"id": 0, "host_cell": "zero", "memory": 1}]})
    assert refused.value.key == "cells.0.host_cell"


def test_admitting_a_guest_again_counts_it_once() -> None:
    tracker = Tracker(HARDWARE)
    pinned = guest(VM, placement({0: 1}))
    tracker.admit(pinned)
    tracker.admit(pinned)
    tracker.settle(VM, lambda: None)
    assert tracker.tracked == empty(HARDWARE)


def test_an_audit_keeps_guests_that_are_just_being_spawned() -> None:
    tracker = Tracker(HARDWARE)
    tracker.admit(guest(VM, placement({0: 1})))
    tracker.audit(lambda: ())
    with pytest.raises(HostRefused):
        tracker.admit(guest(OTHER_VM, placement({0: 1})))
    tracker.settle(VM, lambda: None)
    tracker.audit(lambda: ())
    tracker.admit(guest(OTHER_VM, placement({0: 1})))


def test_an_audit_counts_a_guest_that_is_being_changed_as_it_will_be() -> None:
    tracker = Tracker(HARDWARE)
    before = domain(VM, spec(placement({0: 1})))
    tracker.audit(lambda: (before,))
    tracker.admit(guest(VM, placement({0: 2})))
    tracker.audit(lambda: (before,))
    assert code(tracker.tracked, guest(OTHER_VM, placement({0: 2}))) == "cpu_pinning_invalid"
    tracker.settle(VM, lambda: before)
    assert tracker.tracked == audited(HARDWARE, [before])


def test_a_guest_that_the_hypervisor_will_not_show_is_counted_as_it_was() -> None:
    def silent() -> None:
        raise Unreachable("hypervisor_silent", "no answer")

    tracker = Tracker(HARDWARE)
    tracker.admit(guest(VM, placement({0: 1})))
    tracker.settle(VM, silent)
    assert code(tracker.tracked, guest(OTHER_VM, placement({0: 1}))) == "cpu_pinning_invalid"


def test_a_check_says_what_an_admission_would_and_counts_nothing() -> None:
    tracker = Tracker(HARDWARE)
    tracker.check(guest(VM, placement({0: 1})))
    assert tracker.tracked == empty(HARDWARE)
    tracker.admit(guest(VM, placement({0: 1})))
    tracker.check(guest(VM, placement({0: 1, 1: 2})))
    with pytest.raises(HostRefused):
        tracker.check(guest(OTHER_VM, placement({0: 1})))


def test_an_audit_frees_what_has_gone_without_us() -> None:
    tracker = Tracker(HARDWARE)
    tracker.admit(guest(VM, placement({0: 1})))
    tracker.settle(VM, lambda: domain(VM, spec(placement({0: 1}))))
    tracker.audit(lambda: ())
    assert tracker.tracked.guests == {}


NAMES = ("a", "b", "c", "d")
PLACEMENTS = (
    None,
    placement(),
    placement({0: 0}),
    placement({0: 1}, memory=1024),
    placement({0: 1, 1: 2}, host_cell=0),
    placement({0: 5}, host_cell=1, memory=2048, pagesize=2048),
    placement(host_cell=1, memory=1536, pagesize=2048),
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(PLACEMENTS), st.booleans())))
def test_what_is_tracked_step_by_step_is_what_an_audit_finds(
    steps: list[tuple[str, dict[str, object] | None, bool]],
) -> None:
    tracker = Tracker(HARDWARE)
    there: dict[str, GuestDefinition] = {}
    for name, placed, comes in steps:
        wanted = spec(placed)
        if comes and name not in there:
            try:
                tracker.admit(guest_of(InstanceId(name), wanted))
            except HostRefused:
                continue
            there[name] = wanted
            tracker.settle(InstanceId(name), partial(domain, name, wanted))
        elif not comes:
            there.pop(name, None)
            tracker.settle(InstanceId(name), lambda: None)
        found = audited(HARDWARE, [domain(item, kept) for item, kept in there.items()])
        assert found.degraded == {}
        assert tracker.tracked == found
