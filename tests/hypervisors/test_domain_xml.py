"""The XML of domains: as libvirt's schema has it, and read back as the guest it was made from."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import HostRefused, Rejected
from models.messages.guests import virtual_hardware as kinds
from models.messages.guests.guest_definition import GuestDefinition
from tests.hypervisors.golden_guests import (
    DISKS,
    EMULATED,
    FOLDER,
    GUESTS,
    HOW,
    ID,
    KVM,
    ROOT,
    cell,
    complaints,
    guest,
    path_of,
    text_of,
    why_not_validated,
    xml_of,
)
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk
from workers.hypervisor.libvirt.domain_xml.reading import (
    definition_in,
    is_ours,
    moved_xml,
    observed,
)
from workers.hypervisor.libvirt.domain_xml.writing import domain_xml

validated = pytest.mark.skipif(why_not_validated() is not None, reason=str(why_not_validated()))


def written(definition: GuestDefinition) -> Element:
    return fromstring(domain_xml(ID, definition, KVM, DISKS))


@pytest.mark.parametrize("name", GUESTS)
def test_the_domain_of_a_guest_is_as_it_was_read_last(name: str) -> None:
    assert text_of(xml_of(name)) == path_of(name).read_text(), f"if it is meant: {HOW}"


def test_no_golden_file_is_of_no_guest() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(GUESTS)


@validated
def test_every_golden_file_is_as_the_schema_of_libvirt_has_it() -> None:
    assert not complaints(path_of(name).read_text() for name in GUESTS)


@pytest.mark.parametrize("name", GUESTS)
def test_a_domain_gives_back_the_guest_that_it_was_made_from(name: str) -> None:
    xml = xml_of(name)
    assert is_ours(xml)
    assert definition_in(xml) == GUESTS[name]


amounts = st.none() | st.integers(1, 2**40)
# No message holds a NUL or half of a character.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def _optional(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *values])


def _limits() -> st.SearchStrategy[Any]:
    together = st.fixed_dictionaries({"total_bytes": amounts, "total_operations": amounts})
    apart = st.fixed_dictionaries(
        dict.fromkeys(("read_bytes", "write_bytes", "read_operations", "write_operations"), amounts)
    )
    return st.none() | together | apart


hardware = st.fixed_dictionaries(
    {
        "machine_type": _optional("q35", "pc", "pc-q35-7.2"),
        "firmware": _optional("uefi"),
        "secure_boot": st.booleans(),
        "stateless_firmware": st.booleans(),
        "boot_menu": st.booleans(),
        "cpu_share": st.none()
        | st.fixed_dictionaries(
            {
                "shares": st.none() | st.integers(2, 262_144),
                "quota_us": st.none() | st.integers(1_000, 2**44 - 1),
                "period_us": st.none() | st.integers(1_000, 1_000_000),
            }
        ),
        "realtime_vcpus": _optional("0", "0-1"),
        "pmu": _optional(True, False),
        "clock": st.sampled_from(["utc", "localtime"]),
        "hpet": _optional(True, False),
        "hyperv": st.booleans(),
        "hide_hypervisor": st.booleans(),
        "locked_memory": st.booleans(),
        "tpm": _optional(
            {"version": "2.0", "model": "tpm-crb"}, {"version": "1.2", "model": "tpm-tis"}
        ),
        "watchdog": _optional(*get_args(kinds.WatchdogAction)),
        "random_numbers": st.none()
        | st.fixed_dictionaries({"rate_bytes": st.none() | st.integers(1, 4096)}),
        "serial_ports": st.integers(0, 4),
        "video": _optional(*get_args(kinds.VideoModel)),
        "pointer": _optional("usbtablet", "ps2mouse"),
        "sound": _optional("ac97", "es1370", "ich6", "ich9", "pcspk", "sb16", "usb"),
        "disk_bus": _optional(*get_args(kinds.DiskBus)),
        "scsi_controller": _optional("virtio-scsi", "lsilogic", "megasas"),
        "discard": st.booleans(),
        "disk_limits": _limits(),
        "guest_agent": st.booleans(),
        "packed_ring": st.booleans(),
    }
)


@st.composite
def placements(draw: st.DrawFn, vcpus: int, memory_mib: int) -> dict[str, Any] | None:
    """Up to two guest cells, each of dedicated or of shared vCPUs, of any pages."""
    count = draw(st.integers(0, min(2, vcpus)))
    if not count:
        return None
    cells = []
    for number in range(count):
        mine = list(range(number, vcpus, count))
        cpus: dict[str, Any] = {"cpuset": mine}
        if draw(st.booleans()):
            pins = {str(vcpu): 64 + vcpu for vcpu in mine}
            cpus = {"pcpuset": mine, "cpu_pinning": pins}
        page_kib = draw(_optional(4, 2048, 1048576))
        host_cell = draw(st.integers(0, 3))
        cells.append(cell(number, host_cell, memory_mib // count, pagesize=page_kib, **cpus))
    return {"cells": cells, "emulator_threads_policy": draw(_optional("share", "isolate"))}


@st.composite
def guests(draw: st.DrawFn) -> GuestDefinition:
    """Any guest that a conductor may send."""
    vcpus, memory_mib = draw(st.integers(1, 8)), draw(st.integers(1, 64)) * 2
    return guest(
        vcpus,
        memory_mib,
        name=draw(words),
        metadata=draw(st.dictionaries(words, words, max_size=2)),
        project_id=draw(words),
        hardware=draw(hardware),
        placement=draw(placements(vcpus, memory_mib)),
    )


@given(guests(), st.sampled_from([KVM, EMULATED]))
@settings(deadline=None)
@pytest.mark.hypothesis
def test_any_guest_comes_back_equal(definition: GuestDefinition, host: Any) -> None:
    xml = domain_xml(ID, definition, host, DISKS)
    assert definition_in(xml) == definition


@validated
@given(st.lists(guests(), min_size=10, max_size=10))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.hypothesis
def test_any_guest_is_as_the_schema_of_libvirt_has_it(definitions: list[GuestDefinition]) -> None:
    assert not complaints(domain_xml(ID, one, KVM, DISKS) for one in definitions)


@given(st.text() | st.text("<>/ab &;'\"=!", max_size=40))
@pytest.mark.hypothesis
def test_what_is_no_domain_is_a_fault_and_no_exception(text: str) -> None:
    assert not is_ours(text)
    with pytest.raises(Rejected):
        observed(text)


OURS = domain_xml(ID, GUESTS["two-cells-huge-pages"], KVM, DISKS)


@given(st.data())
@pytest.mark.hypothesis
def test_a_domain_of_ours_that_was_damaged_is_read_or_a_fault(data: st.DataObject) -> None:
    """A daemon's own record, edited by hand: whatever it says, the audit goes on."""
    begin = data.draw(st.integers(0, len(OURS)))
    end = data.draw(st.integers(begin, min(len(OURS), begin + 40)))
    put = data.draw(st.sampled_from(["", "0", "-1", "x", "<", "null", "[]", "{}", "9" * 30, "é"]))
    with suppress(Rejected):
        assert observed(OURS[:begin] + put + OURS[end:]).vcpus


def _damaged(path: str, text: str) -> str:
    domain = fromstring(OURS)
    found = domain.find(path)
    assert found is not None
    found.text = text
    return tostring(domain, encoding="unicode")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("memory", "much"),
        ("vcpu", ""),
        ("vcpu", "-3"),
        ("metadata/*", "[" * 100_000),
        ("metadata/*", "[]"),
        ("metadata/*", "{}"),
        ("metadata/*", '{"version": 99}'),
        ("metadata/*", json.dumps({**GUESTS["plain"].to_json(), "placement": {"cells": 3}})),
        ("metadata/*", json.dumps({**GUESTS["plain"].to_json(), "placement": {"cells": [3]}})),
    ],
)
def test_a_domain_of_ours_that_makes_no_sense_is_a_fault(path: str, text: str) -> None:
    with pytest.raises(Rejected):
        observed(_damaged(path, text))


def test_what_a_domain_really_has_is_counted() -> None:
    domain = fromstring(OURS)
    pin = domain.find("cputune/vcpupin[@vcpu='0']")
    memory = domain.find("memory")
    assert pin is not None
    assert memory is not None
    pin.set("cpuset", "9")
    memory.text, memory.attrib = str(2048 * 1024), {"unit": "KiB"}
    found = observed(tostring(domain, encoding="unicode"))
    assert found.memory_mib == 2048
    assert found.placement is not None
    assert found.placement["cells"][0]["cpu_pinning"] == {"0": 9}


def test_words_that_xml_cannot_hold_reach_no_title() -> None:
    domain = written(GUESTS["odd-words"])
    assert domain.findtext("title") == 'a <b> & "c" ünïcode end'
    assert written(guest(name="\n\x01")).find("title") is None


def test_packed_rings_are_of_virtio_disks_only() -> None:
    disk = written(guest(hardware={"packed_ring": True})).find("devices/disk/driver")
    assert disk is not None
    assert disk.get("packed") == "on"
    domain = written(guest(hardware={"packed_ring": True, "disk_bus": "scsi"}))
    assert [one.get("packed") for one in domain.iterfind("devices/disk/driver")] == [None] * 3
    controller = domain.find("devices/controller[@type='scsi']/driver")
    assert controller is not None
    assert controller.get("packed") == "on"


def test_a_realtime_guest_is_neither_swapped_out_nor_shares_pages() -> None:
    domain = written(GUESTS["realtime"])
    assert domain.find("memoryBacking/locked") is not None
    assert domain.find("memoryBacking/nosharepages") is not None


def test_an_emulated_guest_does_not_see_that_it_is_one_where_it_shall_not() -> None:
    definition = guest(hardware={"hide_hypervisor": True})
    domain = fromstring(domain_xml(ID, definition, EMULATED, [ROOT]))
    feature = domain.find("cpu/feature[@name='hypervisor']")
    assert feature is not None
    assert feature.get("policy") == "disable"


@pytest.mark.parametrize("video", ["virtio", "none"])
def test_video_memory_that_a_model_does_not_have_is_refused_by_name(video: str) -> None:
    definition = guest(hardware={"video": video, "video_memory_mib": 16})
    with pytest.raises(HostRefused, match=re.escape(f"video_memory_mib is 16: {video}")):
        domain_xml(ID, definition, KVM, [ROOT])


@pytest.mark.parametrize(
    "limits",
    [
        {"total_bytes": 1, "read_bytes": 1},
        {"total_bytes": 1, "write_bytes": 1},
        {"total_operations": 1, "read_operations": 1},
    ],
)
def test_limits_of_both_directions_and_of_one_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(HostRefused, match="disk_limits has total_"):
        written(guest(hardware={"disk_limits": limits}))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"firmware": "bios", "secure_boot": True}, "secure_boot is set beside firmware bios"),
        ({"sound": "theremin"}, "sound is theremin: should be one of ac97"),
    ],
)
def test_hardware_that_no_domain_can_have_is_refused_by_name(
    asked: dict[str, Any], named: str
) -> None:
    with pytest.raises(HostRefused, match=named):
        written(guest(hardware=asked))


@validated
@given(st.data())
@settings(max_examples=20, deadline=None)
@pytest.mark.hypothesis
def test_a_guest_that_moves_has_the_cpus_and_paths_of_its_target(data: st.DataObject) -> None:
    before = data.draw(guests())
    placed = data.draw(placements(before.vcpus, before.memory_mib))
    after = before.model_copy(update={"placement": placed})
    elsewhere = [GuestDisk(disk.name, Path("/there") / disk.path.name, "raw") for disk in DISKS]
    source = domain_xml(ID, before, KVM, DISKS)
    target = domain_xml(ID, after, EMULATED, elsewhere)
    moved, there = fromstring(moved_xml(source, target)), fromstring(target)
    for tag in ("cputune", "numatune", "metadata"):
        assert as_text(moved, tag) == as_text(there, tag)
    assert [disk.get("file") for disk in moved.iterfind("devices/disk/source")] == [
        f"/there/{disk.path.name}" for disk in DISKS
    ]
    for tag in ("os", "cpu", "features"):
        assert as_text(moved, tag) == as_text(fromstring(source), tag)
    assert not complaints([tostring(moved, encoding="unicode")])


def as_text(domain: Element, tag: str) -> str:
    found = domain.find(tag)
    return "" if found is None else tostring(found, encoding="unicode")
