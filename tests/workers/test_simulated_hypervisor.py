"""The simulated hypervisor: idempotent, durable, and failing as told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from models.errors import Broken, HostRefused, Rejected, Unreachable
from models.ids import InstanceId
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.image_files import ImageFile
from tests.workers.world import HARDWARE, OTHER_VM, VM, placement, spec, until
from workers.hypervisor.fault_injection import Call, FaultProfile, FaultRates, InjectedFault, seeded
from workers.hypervisor.fenced_hypervisor import AgentDead, FencedHypervisor
from workers.hypervisor.ports import Hypervisor
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.reports import guests_of


def powers(hypervisor: Hypervisor) -> dict[str, str]:
    return {domain.instance_id: domain.power for domain in hypervisor.domains()}


def test_every_action_may_be_repeated_and_has_one_effect() -> None:
    hypervisor = SimulatedHypervisor(HARDWARE)
    actions: dict[str, Callable[[], None]] = {
        "spawn": lambda: hypervisor.spawn(VM, spec()),
        "power_off": lambda: hypervisor.power_off(VM),
        "power_on": lambda: hypervisor.power_on(VM),
        "destroy": lambda: hypervisor.destroy(VM),
    }
    for verb, act in actions.items():
        for _ in range(3):
            act()
        assert (hypervisor.calls(VM, verb), hypervisor.effects(VM, verb)) == (3, 1)
    assert hypervisor.domains() == ()


def test_what_a_move_does_may_be_repeated_and_outlives_the_process(tmp_path: Path) -> None:
    SimulatedHypervisor(HARDWARE, tmp_path).spawn(VM, spec(power="nostate"))
    told: list[int] = []
    moves: dict[str, tuple[Callable[[SimulatedHypervisor], None], str]] = {
        "activate": (lambda host: host.activate(VM), "running"),
        "copy": (lambda host: host.copy(VM, CopyTarget(target="host-2"), told.append), "shutdown"),
        "abort_copy": (lambda host: host.abort_copy(VM), "running"),
        "reshape": (lambda host: host.reshape(VM, spec(vcpus=2, power="shutdown")), "shutdown"),
        "rebuild": (lambda host: host.rebuild(VM, spec(image={"id": "img"})), "running"),
    }
    for verb, (act, power) in moves.items():
        effects = 0
        for _ in range(2):
            hypervisor = SimulatedHypervisor(HARDWARE, tmp_path)
            act(hypervisor)
            effects += hypervisor.effects(VM, verb)
        assert (verb, effects, powers(hypervisor)) == (verb, 1, {VM: power})
    found = SimulatedHypervisor(HARDWARE, tmp_path).domain(VM)
    assert found is not None
    assert found.spec == spec(image={"id": "img"})


def test_a_guest_is_kept_as_it_was_asked_for() -> None:
    hypervisor = SimulatedHypervisor(HARDWARE)
    wanted = spec(placement({0: 1}), vcpus=2, memory_mib=700, disk_gb=9)
    hypervisor.spawn(VM, wanted)
    found = hypervisor.domain(VM)
    assert found is not None
    assert (found.spec, found.power) == (wanted, "running")
    assert hypervisor.domain(OTHER_VM) is None


def test_another_spec_under_the_same_id_is_broken() -> None:
    hypervisor = SimulatedHypervisor(HARDWARE)
    hypervisor.spawn(VM, spec())
    with pytest.raises(Broken):
        hypervisor.spawn(VM, spec(memory_mib=1))


def test_state_outlives_the_process_with_a_directory(tmp_path: Path) -> None:
    first = SimulatedHypervisor(HARDWARE, tmp_path)
    first.spawn(VM, spec(placement({0: 1})))
    first.spawn(OTHER_VM, spec())
    first.power_off(OTHER_VM)
    second = SimulatedHypervisor(HARDWARE, tmp_path)
    assert powers(second) == {VM: "running", OTHER_VM: "shutdown"}
    second.spawn(VM, spec(placement({0: 1})))
    assert second.effects(VM, "spawn") == 0
    second.destroy(VM)
    assert powers(SimulatedHypervisor(HARDWARE, tmp_path)) == {OTHER_VM: "shutdown"}


def test_an_id_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    evil = InstanceId("../../evil/..")
    hypervisor = SimulatedHypervisor(HARDWARE, tmp_path / "state")
    hypervisor.spawn(evil, spec())
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert powers(SimulatedHypervisor(HARDWARE, tmp_path / "state")) == {evil: "running"}


def test_one_damaged_file_hides_no_other_guest(tmp_path: Path) -> None:
    hypervisor = SimulatedHypervisor(HARDWARE, tmp_path)
    hypervisor.spawn(VM, spec())
    hypervisor.spawn(OTHER_VM, spec())
    (tmp_path / f"{VM}.domain").write_text('{"power": ')
    found = {
        domain.instance_id: domain for domain in SimulatedHypervisor(HARDWARE, tmp_path).domains()
    }
    assert found[VM].spec is None
    assert found[VM].fault
    assert found[OTHER_VM].spec == spec()


def test_a_directory_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    hypervisor = SimulatedHypervisor(HARDWARE, tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(Broken) as broken:
        hypervisor.spawn(VM, spec())
    assert broken.value.code == "hypervisor_state"
    assert hypervisor.domains() == ()


@pytest.mark.parametrize(
    ("ending", "error", "there"),
    [
        ("refused", HostRefused, False),
        ("lost_before", Unreachable, False),
        ("lost_after", Unreachable, True),
    ],
)
def test_calls_end_as_the_fault_says(ending: str, error: type[Exception], there: bool) -> None:
    hypervisor = SimulatedHypervisor(
        HARDWARE, injected_faults=lambda _: InjectedFault(ending=ending)
    )  # type: ignore[arg-type]  # one of five
    with pytest.raises(error):
        hypervisor.spawn(VM, spec())
    assert (hypervisor.domain(VM) is not None) == there


@pytest.mark.parametrize(
    "injected_fault", [InjectedFault(ending="hang"), InjectedFault(latency_s=60)]
)
def test_an_aborted_call_ends_at_once_and_changes_nothing(injected_fault: InjectedFault) -> None:
    hypervisor = SimulatedHypervisor(HARDWARE, injected_faults=lambda _: injected_fault)
    errors: list[HostRefused] = []

    def spawn() -> None:
        try:
            hypervisor.spawn(VM, spec())
        except HostRefused as error:
            errors.append(error)

    thread = Thread(target=spawn)
    thread.start()
    assert until(lambda: hypervisor.calls(VM, "spawn") == 1)
    hypervisor.abort(OTHER_VM)
    assert thread.is_alive()
    hypervisor.abort(VM)
    thread.join(5)
    assert [error.code for error in errors] == ["aborted"]
    assert hypervisor.domains() == ()


def test_an_abort_without_a_call_harms_no_later_one() -> None:
    hypervisor = SimulatedHypervisor(HARDWARE)
    hypervisor.abort(VM)
    hypervisor.spawn(VM, spec())
    assert powers(hypervisor) == {VM: "running"}


def test_seeded_faults_repeat_and_keep_to_their_rates() -> None:
    profile = FaultProfile(
        FaultRates(0.1, 0.2, refused=0.2, lost=0.1), {"destroy": FaultRates(hang=1.0)}
    )
    calls = [Call(InstanceId(f"vm-{number}"), "spawn", 0) for number in range(2_000)]
    first, again, other = (seeded(profile, seed) for seed in (1, 1, 2))
    drawn = [first(call) for call in calls]
    assert drawn == [again(call) for call in reversed(calls)][::-1]
    assert drawn != [other(call) for call in calls]
    refused = sum(injected_fault.ending == "refused" for injected_fault in drawn)
    assert 300 < refused < 500
    assert all(0.1 <= injected_fault.latency_s <= 0.2 for injected_fault in drawn)
    assert first(Call(VM, "destroy", 0)).ending == "hang"


def test_a_cut_fence_lets_nothing_pass() -> None:
    hypervisor = SimulatedHypervisor(HARDWARE)
    fenced = FencedHypervisor(hypervisor)
    fenced.spawn(VM, spec())
    assert fenced.cut(1.0)
    plain = (fenced.destroy, fenced.power_on, fenced.power_off, fenced.snapshot)
    moves = (fenced.check_source, fenced.activate, fenced.abort_copy)
    for act in (*plain, *moves):
        with pytest.raises(AgentDead):
            act(VM)
    others: tuple[Callable[[], None], ...] = (
        lambda: fenced.spawn(OTHER_VM, spec()),
        lambda: fenced.reshape(VM, spec(vcpus=2)),
        lambda: fenced.rebuild(VM, spec(vcpus=2)),
        lambda: fenced.check_target(OTHER_VM, spec()),
        lambda: fenced.copy(VM, CopyTarget(target="host-2"), lambda _: None),
        lambda: fenced.cache_image(VM, ImageFile(id="img")),
    )
    for other in others:
        with pytest.raises(AgentDead):
            other()
    assert powers(hypervisor) == {VM: "running"}
    assert fenced.images() == frozenset()
    assert (fenced.name, fenced.hardware(), fenced.domain(VM)) == (
        "simulated",
        HARDWARE,
        hypervisor.domain(VM),
    )


def test_odd_domain_files_are_guests_of_their_own_and_hide_no_other(tmp_path: Path) -> None:
    hypervisor = SimulatedHypervisor(HARDWARE, tmp_path)
    hypervisor.spawn(InstanceId("good"), spec())
    good = (tmp_path / "good.domain").read_text()
    (tmp_path / "list.domain").write_text("[1]")
    (tmp_path / "bytes.domain").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.domain").mkdir()
    (tmp_path / "nowhere.domain").symlink_to(tmp_path / "gone")
    (tmp_path / "dreaming.domain").write_text(good.replace("running", "dreaming", 1))
    (tmp_path / "%00%ED%A0%80.domain").write_text("{}")
    found = SimulatedHypervisor(HARDWARE, tmp_path).domains()
    assert len(found) == 7
    assert {domain.instance_id for domain in found if domain.spec is not None} == {
        "good",
        "dreaming",
    }
    assert {domain.power for domain in found if domain.instance_id != "good"} == {"nostate"}
    fences = {domain.instance_id: 0 for domain in found}
    report = guests_of(found, fences, [domain.instance_id for domain in found])
    assert [domain.power_state for domain in report.domains].count("running") == 1
    assert json.dumps([domain.to_json() for domain in report.domains]).isascii()


def test_a_folder_that_is_none_is_the_operators_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "x")
    for name in ("file", "dangling", "file/below"):
        with pytest.raises(Rejected) as refused:
            SimulatedHypervisor(HARDWARE, tmp_path / name)
        assert str(tmp_path / name) in refused.value.message


@pytest.mark.parametrize("damage", [b"\0" * 36, b"[1]", b"\xff", b'{"a":', b"x" * 300])
def test_a_machine_that_does_not_know_who_it_is_any_more_is_no_new_one(
    tmp_path: Path, damage: bytes
) -> None:
    SimulatedHypervisor(HARDWARE, tmp_path)
    (tmp_path / "machine-id").write_bytes(damage)
    with pytest.raises(Rejected, match=r"machine-id holds no UUID"):
        SimulatedHypervisor(HARDWARE, tmp_path)
