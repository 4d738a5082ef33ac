"""The contract of the hypervisor port, as sentences; each adapter has a class that inherits them.

Guests are stopped wherever their power is not the question: under emulation a start costs seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pytest

from models.errors import Broken, HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage, RootDisk
from tests.limits import wait_for
from workers.hypervisor.ports import Hypervisor


class ContractHost(Protocol):
    """A host under test: its hypervisor, and what people and accidents do to its guests."""

    name: str
    hypervisor: Hypervisor

    def image(self) -> ImageFile:
        """Return an image that its guests can be made of."""
        ...

    def write(self, instance_id: InstanceId, text: str) -> None:
        """Write on the root disk of a guest that does not run, as the guest itself would."""
        ...

    def read(self, instance_id: InstanceId) -> str:
        """Return what was written there; something else where nothing was."""
        ...

    def crash(self, instance_id: InstanceId) -> None:
        """Have the process of a guest die."""
        ...

    def until_it_listens(self, instance_id: InstanceId) -> None:
        """Wait until a guest that runs would heed its power button."""
        ...


@dataclass(frozen=True)
class Pair:
    """Two hosts, and a guest that is on neither of them before the test and after it."""

    here: ContractHost
    there: ContractHost
    guest: InstanceId

    def definition(self, **more: Any) -> GuestDefinition:
        """A guest of one vCPU and 128 MiB, which is not to run unless the test says so."""
        fields = {
            "name": "tiny",
            "vcpus": 1,
            "memory_mib": 128,
            "disk_gb": 1,
            "image": self.here.image(),
            "project_id": "demo",
            "power": "shutdown",
        }
        return GuestDefinition(**{**fields, **more})

    def power(self, host: ContractHost | None = None) -> str | None:
        """What the guest is, here unless another host is named; None where there is no guest."""
        domain = (host or self.here).hypervisor.domain(self.guest)
        return domain.power if domain else None


def pair_of(here: ContractHost, there: ContractHost) -> Iterator[Pair]:
    """Give two hosts to a test, and remove its guest afterwards."""
    pair = Pair(here, there, InstanceId(str(uuid.uuid4())))
    yield pair
    for host in (here, there):
        host.hypervisor.destroy(pair.guest)
        assert pair.power(host) is None


def refused(act: Callable[[], object]) -> str:
    """Return the code with which a hypervisor refuses."""
    with pytest.raises(HostRefused) as error:
        act()
    return error.value.code


AWAITED = RootDisk(origin="copy")


class HypervisorContract:
    """The promises; a class that inherits them has a fixture `pair`."""

    def test_every_action_may_be_repeated(self, pair: Pair) -> None:
        hypervisor, guest = pair.here.hypervisor, pair.guest
        for act, after in (
            (lambda: hypervisor.spawn(guest, pair.definition(power="running")), "running"),
            (lambda: hypervisor.check_source(guest), "running"),
            (lambda: hypervisor.pause(guest), "paused"),
            (lambda: hypervisor.power_on(guest), "running"),
            (lambda: hypervisor.suspend(guest), "suspended"),
            (lambda: hypervisor.power_on(guest), "running"),
            (lambda: hypervisor.reboot(guest, hard=True), "running"),
            (lambda: pair.here.until_it_listens(guest), "running"),
            (lambda: hypervisor.power_off(guest), "shutdown"),
            (lambda: hypervisor.reboot(guest, hard=True), "running"),
            (lambda: hypervisor.destroy(guest), None),
        ):
            for _ in range(2):
                act()
                assert pair.power() == after

    def test_a_guest_is_told_as_it_was_asked_for(self, pair: Pair) -> None:
        wanted = pair.definition(metadata={"role": "db"})
        pair.here.hypervisor.spawn(pair.guest, wanted)
        found = pair.here.hypervisor.domain(pair.guest)
        assert found is not None
        assert found.spec == wanted.model_copy(update={"power": "running"})
        assert (found.power, found.fault, found.copied_to) == ("shutdown", "", None)
        assert found in pair.here.hypervisor.domains()
        assert pair.guest not in {d.instance_id for d in pair.there.hypervisor.domains()}

    def test_another_definition_under_the_same_id_is_broken_and_changes_nothing(
        self, pair: Pair
    ) -> None:
        pair.here.hypervisor.spawn(pair.guest, pair.definition())
        before = pair.here.hypervisor.domain(pair.guest)
        with pytest.raises(Broken) as broken:
            pair.here.hypervisor.spawn(pair.guest, pair.definition(memory_mib=64))
        assert broken.value.code == "domain_differs"
        assert pair.here.hypervisor.domain(pair.guest) == before

    def test_what_needs_a_guest_is_refused_without_one(self, pair: Pair) -> None:
        hypervisor, guest = pair.here.hypervisor, pair.guest
        for act in (
            lambda: hypervisor.power_on(guest),
            lambda: hypervisor.power_off(guest),
            lambda: hypervisor.pause(guest),
            lambda: hypervisor.suspend(guest),
            lambda: hypervisor.reboot(guest, hard=False),
            lambda: hypervisor.reboot(guest, hard=True),
            lambda: hypervisor.reshape(guest, pair.definition()),
            lambda: hypervisor.snapshot(guest),
            lambda: hypervisor.offer_disk(guest),
            lambda: hypervisor.take_disk(guest, DiskImage(id="disk", checksum="none")),
            lambda: hypervisor.check_disk(guest),
            lambda: hypervisor.check_source(guest),
            lambda: hypervisor.activate(guest),
            lambda: hypervisor.copy(guest, CopyTarget(target="B"), lambda _: None),
            lambda: hypervisor.abort_copy(guest),
        ):
            assert refused(act) == "domain_missing"
        assert pair.power() is None
        hypervisor.destroy(guest)
        hypervisor.abort(guest)

    def test_what_needs_a_guest_that_runs_is_refused_for_any_other(self, pair: Pair) -> None:
        hypervisor, guest = pair.here.hypervisor, pair.guest
        hypervisor.spawn(guest, pair.definition())
        for act in (
            lambda: hypervisor.pause(guest),
            lambda: hypervisor.suspend(guest),
            lambda: hypervisor.reboot(guest, hard=False),
            lambda: hypervisor.check_source(guest),
            lambda: hypervisor.copy(guest, CopyTarget(target="B"), lambda _: None),
        ):
            assert refused(act) == "not_running"
        assert refused(lambda: hypervisor.activate(guest)) == "not_waiting"
        assert pair.power() == "shutdown"

    def test_a_disk_neither_leaves_nor_comes_while_its_guest_runs(self, pair: Pair) -> None:
        hypervisor, guest = pair.here.hypervisor, pair.guest
        hypervisor.spawn(guest, pair.definition())
        offered = hypervisor.offer_disk(guest)
        hypervisor.power_on(guest)
        for stands_still in (lambda: None, lambda: hypervisor.pause(guest)):
            stands_still()
            assert refused(lambda: hypervisor.offer_disk(guest)) == "still_running"
            assert refused(lambda: hypervisor.take_disk(guest, offered)) == "still_running"

    def test_a_guest_whose_disk_is_awaited_starts_once_it_has_come(self, pair: Pair) -> None:
        source, target, guest = pair.here.hypervisor, pair.there.hypervisor, pair.guest
        source.spawn(guest, pair.definition())
        pair.here.write(guest, "data")
        target.spawn(guest, pair.definition(root_disk=AWAITED))
        for act in (target.power_on, target.check_disk, target.offer_disk, target.snapshot):
            assert refused(partial(act, guest)) == "disk_awaited"
        offered = source.offer_disk(guest)
        for _ in range(2):
            assert target.take_disk(guest, offered) == offered.checksum
        target.check_disk(guest)
        assert pair.there.read(guest) == "data"
        assert pair.here.read(guest) == "data"
        target.power_on(guest)
        assert pair.power(pair.there) == "running"

    def test_a_disk_that_is_not_what_was_offered_leaves_nothing(self, pair: Pair) -> None:
        source, target, guest = pair.here.hypervisor, pair.there.hypervisor, pair.guest
        source.spawn(guest, pair.definition())
        target.spawn(guest, pair.definition(root_disk=AWAITED))
        offered = source.offer_disk(guest)
        damaged = offered.model_copy(update={"checksum": f"sha256:{'0' * 64}"})
        assert refused(lambda: target.take_disk(guest, damaged)) == "disk_damaged"
        assert refused(lambda: target.check_disk(guest)) == "disk_awaited"

    def test_a_snapshot_outlives_its_guest_and_starts_another(self, pair: Pair) -> None:
        source, target, guest = pair.here.hypervisor, pair.there.hypervisor, pair.guest
        source.spawn(guest, pair.definition())
        pair.here.write(guest, "data")
        saved = source.snapshot(guest)
        assert source.snapshot(guest) == saved
        assert pair.here.read(guest) == "data"
        source.destroy(guest)
        from_it = RootDisk(origin="snapshot", disk=saved)
        target.spawn(guest, pair.definition(root_disk=from_it))
        assert pair.there.read(guest) == "data"

    def test_a_guest_keeps_its_disk_when_it_is_reshaped_and_loses_it_when_rebuilt(
        self, pair: Pair
    ) -> None:
        hypervisor, guest = pair.here.hypervisor, pair.guest
        hypervisor.spawn(guest, pair.definition())
        pair.here.write(guest, "data")
        larger = pair.definition(memory_mib=160, root_gib=1)
        for _ in range(2):
            hypervisor.reshape(guest, larger)
            found = hypervisor.domain(guest)
            assert found is not None
            assert found.spec == larger.model_copy(update={"power": "running"})
            assert pair.here.read(guest) == "data"
        hypervisor.rebuild(guest, larger)
        assert pair.here.read(guest) != "data"
        assert pair.power() == "shutdown"

    def test_a_rebuild_makes_a_guest_where_there_is_none(self, pair: Pair) -> None:
        for _ in range(2):
            pair.here.hypervisor.rebuild(pair.guest, pair.definition())
            assert pair.power() == "shutdown"

    def test_checks_of_a_target_change_nothing(self, pair: Pair) -> None:
        before = pair.there.hypervisor.domains()
        pair.there.hypervisor.check_target(pair.guest, pair.definition())
        assert pair.there.hypervisor.domains() == before

    def test_a_running_guest_is_copied_once_and_runs_where_it_waited(self, pair: Pair) -> None:
        source, target, guest = pair.here.hypervisor, pair.there.hypervisor, pair.guest
        source.spawn(guest, pair.definition())
        pair.here.write(guest, "data")
        source.power_on(guest)
        target.spawn(guest, pair.definition(power="nostate", root_disk=AWAITED))
        assert pair.power(pair.there) == "nostate"
        to = CopyTarget(target=pair.there.name, destination=target.destination(guest))
        copies = [source.copy(guest, to, lambda _: None) for _ in range(2)]
        left = source.domain(guest)
        assert left is not None
        assert (left.power, left.copied_to) == ("shutdown", pair.there.name)
        for _ in range(2):
            target.activate(guest, copies[0])
            assert pair.power(pair.there) == "running"
        source.destroy(guest)
        assert pair.power(pair.there) == "running"
        target.reboot(guest, hard=True)
        target.pause(guest)
        assert pair.there.read(guest) == "data"

    def test_a_copy_that_was_not_begun_is_aborted_with_the_guest_running_on(
        self, pair: Pair
    ) -> None:
        pair.here.hypervisor.spawn(pair.guest, pair.definition(power="running"))
        for _ in range(2):
            pair.here.hypervisor.abort_copy(pair.guest)
            assert pair.power() == "running"

    def test_a_guest_whose_process_dies_has_crashed_is_told_of_and_starts_again(
        self, pair: Pair
    ) -> None:
        changed: list[InstanceId] = []
        pair.here.hypervisor.watch(changed.append)
        pair.here.hypervisor.spawn(pair.guest, pair.definition(power="running"))
        wait_for(lambda: pair.guest in changed, "an event of the start")
        changed.clear()
        pair.here.crash(pair.guest)
        wait_for(lambda: pair.guest in changed, "an event of the crash")
        wait_for(lambda: pair.power() == "crashed", "the guest to have crashed")
        pair.here.hypervisor.power_on(pair.guest)
        assert pair.power() == "running"

    def test_an_image_is_cached_once(self, pair: Pair) -> None:
        image = pair.here.image()
        for _ in range(2):
            pair.here.hypervisor.cache_image(pair.guest, image)
            assert image.id in pair.here.hypervisor.images()

    def test_machines_are_told_from_each_other(self, pair: Pair) -> None:
        here, there = pair.here.hypervisor, pair.there.hypervisor
        assert here.machine_id == here.machine_id
        assert here.machine_id != there.machine_id
        assert here.name == there.name
