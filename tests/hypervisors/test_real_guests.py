"""Guests on libvirt are what was asked for, say the guests, and go on whatever happens to it."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any

import libvirt
import pytest

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.root_disks import RootDisk
from tests.hypervisors.conftest import Host, definition, placed
from tests.limits import wait_for


def power(host: Host, instance_id: InstanceId) -> str | None:
    domain = host.hypervisor.domain(instance_id)
    return domain.power if domain else None


def domain_xml_of(host: Host, instance_id: InstanceId) -> str:
    command = ["virsh", "--connect", host.daemon.uri, "dumpxml", instance_id]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pins_of(host: Host, instance_id: InstanceId) -> dict[str, str]:
    found = re.findall(r"<vcpupin vcpu='(\d+)' cpuset='([^']+)'", domain_xml_of(host, instance_id))
    return dict(found)


def test_what_was_claimed_is_what_the_guest_sees(hosts: list[Host], guest: InstanceId) -> None:
    here = hosts[0]
    cells = placed(
        {"memory": 96, "pcpuset": [0], "cpu_pinning": {"0": 1}},
        {"memory": 96, "pcpuset": [1], "cpu_pinning": {"1": 0}},
    )
    here.hypervisor.spawn(guest, definition(vcpus=2, memory_mib=192, placement=cells))
    here.says(guest, r"^READY")
    said = here.said(guest)
    assert re.findall(r"^UUID (\S+)", said, re.MULTILINE) == [guest]
    assert re.findall(r"^VCPUS (\d+)", said, re.MULTILINE) == ["2"]
    assert re.findall(r"^NODE (\d) cpus=(\S+)", said, re.MULTILINE) == [("0", "0"), ("1", "1")]
    assert re.findall(r"^DISK vda sectors=(\d+) serial=(\S+)", said, re.MULTILINE) == [
        ("65536", "root")
    ]
    for line in ("SERIAL_PORTS 1", "TPM none", "FIRMWARE bios"):  # of which nobody said anything
        assert re.search(rf"^{line}\r?$", said, re.MULTILINE), line
    assert not re.search(r"^CHANNEL|^PCI .*id=(8086:25ab|1af4:1044)", said, re.MULTILINE)
    assert pins_of(here, guest) == {"0": "1", "1": "0"}


def test_a_running_guest_moves_with_its_memory_and_disk_to_the_cpus_claimed_there(
    hosts: list[Host], guest: InstanceId
) -> None:
    source, target = hosts
    cell: dict[str, Any] = {"memory": 128, "pcpuset": [0]}
    before = definition(placement=placed({**cell, "cpu_pinning": {"0": 1}}))
    after = definition(placement=placed({**cell, "cpu_pinning": {"0": 0}}))
    source.hypervisor.spawn(guest, before)
    source.says(guest, r"^TICK 3$")
    waiting = after.model_copy(update={"power": "nostate", "root_disk": RootDisk(origin="copy")})
    target.hypervisor.spawn(guest, waiting)
    assert power(target, guest) == "nostate"
    destination = target.hypervisor.destination(guest)
    told: list[int] = []
    for _ in range(2):  # a repeated copy is done already
        source.hypervisor.copy(guest, CopyTarget(target="B", destination=destination), told.append)
    target.hypervisor.activate(guest)
    assert (power(source, guest), power(target, guest)) == ("shutdown", "running")
    left = source.ticks(guest)[-1]
    wait_for(lambda: [t for t in target.ticks(guest) if t > left + 1], "the counter to go on")
    everything = source.ticks(guest) + target.ticks(guest)
    assert everything == list(range(1, len(everything) + 1))
    assert pins_of(target, guest) == {"0": "0"}
    found = target.hypervisor.domain(guest)
    assert found is not None
    assert found.spec == after
    with pytest.raises(HostRefused, match="here it would run twice"):
        source.hypervisor.abort_copy(guest)
    source.hypervisor.destroy(guest)
    assert power(target, guest) == "running"
    target.hypervisor.power_off(guest)
    assert power(target, guest) == "shutdown"
    target.hypervisor.power_on(guest)
    assert power(target, guest) == "running"


def test_a_copy_that_is_aborted_leaves_the_guest_running_where_it_was(
    hosts: list[Host], guest: InstanceId
) -> None:
    source, target = hosts
    source.hypervisor.spawn(guest, definition())
    source.says(guest, r"^TICK 2$")
    waiting = definition(power="nostate", root_disk=RootDisk(origin="copy"))
    target.hypervisor.spawn(guest, waiting)
    destination = target.hypervisor.destination(guest)
    slow = CopyTarget.model_validate_json(
        '{"target": "B", "policy": {"bandwidth_mib_s": 1, "timeout_s": 2.5}}'
    ).model_copy(update={"destination": destination})
    with pytest.raises(HostRefused) as ended:
        source.hypervisor.copy(guest, slow, lambda _: None)
    assert ended.value.code == "copy_timeout"
    target.hypervisor.destroy(guest)
    source.hypervisor.abort_copy(guest)
    assert (power(source, guest), power(target, guest)) == ("running", None)
    seen = source.ticks(guest)[-1]
    wait_for(lambda: source.ticks(guest)[-1] > seen + 1, "the counter to go on")


def test_a_domain_of_somebody_else_is_seen_and_left_alone(
    hosts: list[Host], guest: InstanceId
) -> None:
    here = hosts[0]
    theirs = f"""<domain type='qemu'><name>theirs</name><uuid>{guest}</uuid>
      <memory unit='MiB'>64</memory><vcpu>1</vcpu>
      <os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"""
    connection = libvirt.open(here.daemon.uri)
    domain = connection.defineXML(theirs)
    try:
        (found,) = here.hypervisor.domains()
        assert found.instance_id == "foreign/theirs"
        assert found.spec is not None
        assert (found.spec.vcpus, found.spec.memory_mib) == (1, 64)
        for act in (
            here.hypervisor.destroy,
            lambda it: here.hypervisor.spawn(it, definition()),
        ):
            with pytest.raises(HostRefused) as refused:
                act(guest)
            assert refused.value.code == "domain_foreign"
        assert domain.name() == "theirs"
    finally:
        domain.undefine()
        connection.close()


def test_a_guest_whose_worker_died_between_two_definitions_is_defined_anew_with_its_disk(
    hosts: list[Host], guest: InstanceId
) -> None:
    here = hosts[0].hypervisor
    here.spawn(guest, definition(power="shutdown"))
    here.control.forget(guest)
    assert here.domain(guest) is None
    here.reshape(guest, definition(memory_mib=160, power="shutdown"))
    there = here.domain(guest)
    assert there is not None
    assert there.spec is not None
    assert there.spec.memory_mib == 160


def test_a_daemon_that_is_killed_is_connected_to_again_and_the_guest_has_run_on(
    hosts: list[Host], guest: InstanceId
) -> None:
    here = hosts[0]
    here.hypervisor.spawn(guest, definition())
    here.says(guest, r"^TICK 1$")
    before = here.daemon.emulator_pid(guest)
    connection = here.hypervisor.control.connection
    connection.call("lose the connection", lambda found: found.close())
    time.sleep(0.1)
    assert power(here, guest) == "running"
    assert here.daemon.emulator_pid(guest) == before
