"""What each field of `conductor guest` answers, and what it cannot answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conductor.cli.cases.guest_cases import answer_guest
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.guest_requirements import refuse_contradictions

Json = dict[str, Any]

UEFI = {"hw_firmware_type": "uefi"}
REALTIME = {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}


def asked(specs: Json | None = None, properties: Json | None = None, **beside: Any) -> Json:
    """Return the answer to a flavor of four vCPUs (or as said) and an image."""
    flavor = {"vcpus": beside.pop("vcpus", 4), "memory_mb": 4096, "extra_specs": specs or {}}
    case = {"id": "c", "flavor": flavor, "image": {"properties": properties or {}}, **beside}
    return answer_guest(json.dumps(case), 1)


def answered(
    field: str, specs: Json | None = None, properties: Json | None = None, **beside: Any
) -> Any:
    answer = asked(specs, properties, **beside)
    assert field not in answer.get("rejected", {}), answer["rejected"]
    return answer["guest"][field]


def refusals(
    specs: Json, properties: Json | None = None, **beside: Any
) -> dict[str, tuple[str, str]]:
    """Return (code, key) of every field that is refused."""
    rejected = asked(specs, properties, **beside).get("rejected", {})
    return {field: (item["code"], item["key"]) for field, item in rejected.items()}


def parts(topology: Json) -> tuple[int, int, int]:
    return topology["sockets"], topology["cores"], topology["threads"]


def test_what_nobody_asked_for_is_null_and_what_is_always_there_has_its_default() -> None:
    assert asked() == {
        "id": "c",
        "guest": {
            "cpu_topology": {"sockets": 4, "cores": 1, "threads": 1},
            "cpu_topology_preferred": {"sockets": 0, "cores": 0, "threads": 0},
            "cpu_topology_maximum": {"sockets": 65536, "cores": 65536, "threads": 65536},
            "serial_ports": 1,
            "memory_encryption": False,
            "vtpm": None,
            "secure_boot": None,
            "pmu": None,
            "vif_multiqueue": False,
            "pci_numa_affinity_policy": None,
            "emulator_threads_policy": None,
            "realtime_cpus": None,
            "dedicated_cpus": None,
            "cpu_policy": None,
            "cpu_thread_policy": None,
            "ephemeral_encryption": None,
            "ephemeral_encryption_format": None,
            "locked_memory": None,
            "page_size": None,
            "vpmem": [],
            "rescue": False,
            "numa": None,
        },
    }


def test_a_case_may_leave_out_its_image_or_say_null() -> None:
    flavor = {"vcpus": 2, "memory_mb": 512}
    without = answer_guest(json.dumps({"id": 1, "flavor": flavor}), 1)
    nulls = {"image": None, "machine_type": None, "allow_threads": None}
    assert answer_guest(json.dumps({"id": 1, "flavor": flavor, **nulls}), 1) == without
    assert without["guest"]["cpu_topology"] == {"sockets": 2, "cores": 1, "threads": 1}


@pytest.mark.parametrize(
    ("field", "specs", "properties", "value"),
    [
        ("serial_ports", {"hw:serial_port_count": "4"}, {}, 4),
        ("serial_ports", {"hw:serial_port_count": "0"}, {}, 1),
        ("serial_ports", {"hw:serial_port_count": "0"}, {"hw_serial_port_count": 6}, 6),
        ("serial_ports", {}, {"hw_serial_port_count": "6"}, 6),
        ("serial_ports", {"hw:serial_port_count": "4"}, {"hw_serial_port_count": 2}, 2),
        ("serial_ports", {"hw:serial_port_count": "4"}, {"hw_serial_port_count": 0}, 4),
        ("memory_encryption", {"hw:mem_encryption": "true"}, UEFI, True),
        ("memory_encryption", {}, {"hw_mem_encryption": True, **UEFI}, True),
        ("memory_encryption", {"hw:mem_encryption": "no"}, {"hw_mem_encryption": False}, False),
        (
            "memory_encryption",
            {"hw:mem_encryption": "1"},
            {"hw_machine_type": "pc-q35-2.11", "hw_mem_encryption": "on", **UEFI},
            True,
        ),
        ("vtpm", {"hw:tpm_version": "1.2"}, {}, {"version": "1.2", "model": "tpm-tis"}),
        (
            "vtpm",
            {"hw:tpm_version": "2.0"},
            {"hw_tpm_version": 2.0, "hw_tpm_model": "tpm-crb"},
            {"version": "2.0", "model": "tpm-crb"},
        ),
        ("vtpm", {"hw:tpm_model": "tpm-crb"}, {}, None),
        ("secure_boot", {"os:secure_boot": "required"}, {}, "required"),
        ("secure_boot", {}, {"os_secure_boot": "optional"}, "optional"),
        ("secure_boot", {"os:secure_boot": "disabled"}, {"os_secure_boot": "disabled"}, "disabled"),
        ("pmu", {"hw:pmu": "true"}, {}, True),
        ("pmu", {"hw:pmu": "off"}, {"hw_pmu": False}, False),
        ("pmu", {}, {"hw_pmu": "false"}, False),
        ("vif_multiqueue", {"hw:vif_multiqueue_enabled": "yes"}, {}, True),
        ("vif_multiqueue", {}, {"hw_vif_multiqueue_enabled": True}, True),
        ("vif_multiqueue", {"hw:vif_multiqueue_enabled": "no"}, {}, False),
        ("pci_numa_affinity_policy", {"hw:pci_numa_affinity_policy": "socket"}, {}, "socket"),
        ("pci_numa_affinity_policy", {}, {"hw_pci_numa_affinity_policy": "required"}, "required"),
        ("emulator_threads_policy", {"hw:emulator_threads_policy": "share"}, {}, "share"),
        ("realtime_cpus", REALTIME, {}, [1, 2, 3]),
        ("realtime_cpus", REALTIME, {"hw_cpu_realtime_mask": "2-3"}, [2, 3]),
        ("realtime_cpus", {"hw:cpu_realtime_mask": "^0"}, {}, None),
        ("dedicated_cpus", {"hw:cpu_dedicated_mask": "^0-1"}, {}, [2, 3]),
        ("dedicated_cpus", {"hw:cpu_policy": "dedicated"}, {}, None),
        ("cpu_policy", {"resources:PCPU": "4"}, {}, None),
        ("cpu_policy", {"hw:cpu_policy": "dedicated"}, {"hw_cpu_policy": "shared"}, "dedicated"),
        ("cpu_thread_policy", {"trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}, None),
        ("cpu_thread_policy", {}, {"hw_cpu_thread_policy": "isolate"}, "isolate"),
        ("ephemeral_encryption", {"hw:ephemeral_encryption": "true"}, {}, True),
        ("ephemeral_encryption", {}, {"hw_ephemeral_encryption": False}, False),
        (
            "ephemeral_encryption_format",
            {"hw:ephemeral_encryption_format": "luks"},
            {"hw_ephemeral_encryption_format": "luks"},
            "luks",
        ),
        ("locked_memory", {"hw:locked_memory": "1", "hw:mem_page_size": "any"}, {}, True),
        ("locked_memory", {"hw:locked_memory": "no"}, {}, False),
        ("page_size", {"hw:mem_page_size": ".5GB"}, {}, 524288),
        ("page_size", {"hw:mem_page_size": "any"}, {"hw_mem_page_size": "large"}, -2),
        ("vpmem", {"hw:pmem": "6GB, ,LARGE"}, {}, ["6GB", "LARGE"]),
        ("rescue", {}, {"hw_rescue_bus": "usb"}, True),
        ("rescue", {}, {"hw_rescue_device": "disk"}, True),
    ],
)
def test_a_field_is_answered_from_flavor_and_image(
    field: str, specs: Json, properties: Json, value: Any
) -> None:
    assert answered(field, specs, properties) == value


@pytest.mark.parametrize(
    ("fields", "code", "key", "specs", "properties"),
    [
        ("serial_ports", "serial_port_count_invalid", "hw:serial_port_count",
         {"hw:serial_port_count": "many"}, {}),
        ("serial_ports", "serial_port_count_invalid", "hw:serial_port_count",
         {"hw:serial_port_count": "-1"}, {}),
        ("serial_ports", "serial_port_count_invalid", "hw_serial_port_count",
         {}, {"hw_serial_port_count": 1.5}),
        ("serial_ports", "serial_port_count_conflict", "hw:serial_port_count",
         {"hw:serial_port_count": "4"}, {"hw_serial_port_count": 6}),
        ("memory_encryption", "mem_encryption_conflict", "hw:mem_encryption",
         {"hw:mem_encryption": "true"}, {"hw_mem_encryption": False, **UEFI}),
        ("memory_encryption", "mem_encryption_conflict", "hw:mem_encryption",
         {"hw:mem_encryption": "no"}, {"hw_mem_encryption": "yes", **UEFI}),
        ("memory_encryption", "mem_encryption_needs_uefi", "hw_firmware_type",
         {"hw:mem_encryption": "true"}, {}),
        ("memory_encryption", "mem_encryption_needs_uefi", "hw_firmware_type",
         {}, {"hw_mem_encryption": True, "hw_firmware_type": "bios"}),
        ("memory_encryption", "mem_encryption_needs_q35", "hw_machine_type",
         {"hw:mem_encryption": "true"}, {"hw_machine_type": "pc", **UEFI}),
        ("memory_encryption numa", "firmware_type_invalid", "hw_firmware_type",
         {}, {"hw_firmware_type": "coreboot"}),
        ("vtpm", "tpm_version_invalid", "hw:tpm_version", {"hw:tpm_version": "3.0"}, {}),
        ("vtpm", "tpm_version_conflict", "hw:tpm_version",
         {"hw:tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}),
        ("vtpm", "tpm_model_invalid", "hw:tpm_model",
         {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm"}, {}),
        ("vtpm", "tpm_model_conflict", "hw:tpm_model",
         {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-tis"}, {"hw_tpm_model": "tpm-crb"}),
        ("vtpm", "tpm_model_needs_version", "hw:tpm_model",
         {"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}),
        ("vtpm", "tpm_model_needs_version", "hw_tpm_model",
         {"hw:tpm_version": "1.2"}, {"hw_tpm_model": "tpm-crb"}),
        ("vtpm numa", "tpm_model_invalid", "hw_tpm_model", {}, {"hw_tpm_model": "dtpm"}),
        ("vtpm numa", "tpm_version_invalid", "hw_tpm_version", {}, {"hw_tpm_version": "3.0"}),
        ("secure_boot", "secure_boot_invalid", "os:secure_boot", {"os:secure_boot": "always"}, {}),
        ("secure_boot", "secure_boot_conflict", "os:secure_boot",
         {"os:secure_boot": "required"}, {"os_secure_boot": "disabled"}),
        ("secure_boot numa", "secure_boot_invalid", "os_secure_boot",
         {}, {"os_secure_boot": "always"}),
        ("pmu", "pmu_conflict", "hw:pmu", {"hw:pmu": "true"}, {"hw_pmu": False}),
        ("vif_multiqueue", "vif_multiqueue_enabled_conflict", "hw:vif_multiqueue_enabled",
         {"hw:vif_multiqueue_enabled": "no"}, {"hw_vif_multiqueue_enabled": True}),
        ("pci_numa_affinity_policy", "pci_numa_affinity_policy_invalid",
         "hw:pci_numa_affinity_policy", {"hw:pci_numa_affinity_policy": "near"}, {}),
        ("pci_numa_affinity_policy", "pci_numa_affinity_policy_conflict",
         "hw:pci_numa_affinity_policy", {"hw:pci_numa_affinity_policy": "socket"},
         {"hw_pci_numa_affinity_policy": "legacy"}),
        ("emulator_threads_policy numa", "emulator_threads_policy_invalid",
         "hw:emulator_threads_policy", {"hw:emulator_threads_policy": "own"}, {}),
        ("emulator_threads_policy realtime_cpus numa", "emulator_threads_policy_invalid",
         "hw:emulator_threads_policy", {"hw:emulator_threads_policy": "own", **REALTIME}, {}),
        ("realtime_cpus numa", "realtime_mask_invalid", "hw:cpu_realtime_mask",
         {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "7"}, {}),
        ("dedicated_cpus numa", "dedicated_mask_invalid", "hw:cpu_dedicated_mask",
         {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"}, {}),
        ("cpu_policy numa", "cpu_policy_conflict", "hw:cpu_policy",
         {"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}),
        ("cpu_thread_policy numa", "cpu_thread_policy_invalid", "hw:cpu_thread_policy",
         {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "own"}, {}),
        ("ephemeral_encryption", "ephemeral_encryption_conflict", "hw:ephemeral_encryption",
         {"hw:ephemeral_encryption": "yes"}, {"hw_ephemeral_encryption": False}),
        ("ephemeral_encryption_format", "ephemeral_encryption_format_invalid",
         "hw:ephemeral_encryption_format", {"hw:ephemeral_encryption_format": "rot13"}, {}),
        ("ephemeral_encryption_format", "ephemeral_encryption_format_conflict",
         "hw:ephemeral_encryption_format", {"hw:ephemeral_encryption_format": "luks"},
         {"hw_ephemeral_encryption_format": "plain"}),
        ("locked_memory numa", "locked_memory_needs_page_size", "hw:locked_memory",
         {"hw:locked_memory": "true"}, {}),
        ("page_size numa", "mem_page_size_invalid", "hw:mem_page_size",
         {"hw:mem_page_size": "huge"}, {}),
        ("rescue numa", "rescue_bus_invalid", "hw_rescue_bus", {}, {"hw_rescue_bus": "punch-card"}),
        ("numa", "mixed_needs_one_mask", "hw:cpu_policy", {"hw:cpu_policy": "mixed"}, {}),
        ("numa", "numa_nodes_invalid", "hw:numa_nodes", {"hw:numa_nodes": "0"}, {}),
        ("numa", "cpu_resources_conflict", "resources:PCPU",
         {"hw:cpu_policy": "shared", "resources:PCPU": "4"}, {}),
        ("numa", "cpu_thread_policy_needs_dedicated", "hw:cpu_thread_policy",
         {"hw:cpu_thread_policy": "require"}, {}),
    ],
)  # fmt: skip  # a table reads better in pairs of lines than in columns of one
def test_what_cannot_be_answered_is_refused_under_each_field_it_prevents(
    fields: str, code: str, key: str, specs: Json, properties: Json
) -> None:
    assert refusals(specs, properties) == dict.fromkeys(fields.split(), (code, key))
    answer = asked(specs, properties)
    assert len(answer["guest"]) + len(answer["rejected"]) == 22


def test_a_guest_of_one_vcpu_gets_no_multiqueue_and_no_conflict_about_it() -> None:
    """Check H10."""
    specs, properties = {"hw:vif_multiqueue_enabled": "no"}, {"hw_vif_multiqueue_enabled": True}
    assert answered("vif_multiqueue", specs, properties, vcpus=1) is False


def test_the_hosts_machine_type_goes_before_the_images() -> None:
    specs = {"hw:mem_encryption": "true"}
    image = {"hw_machine_type": "pc", **UEFI}
    assert answered("memory_encryption", specs, image, machine_type="q35") is True
    image = {"hw_machine_type": "q35", **UEFI}
    refused = refusals(specs, image, machine_type="pc-i440fx-6.2")
    assert refused == {"memory_encryption": ("mem_encryption_needs_q35", "machine_type")}


def test_several_fields_are_refused_each_with_its_own_reason() -> None:
    specs = {"hw:serial_port_count": "x", "hw:pmu": "yes", "hw:cpu_sockets": "x"}
    refused = refusals(specs, {"hw_pmu": False})
    topology = ("cpu_sockets_invalid", "hw:cpu_sockets")
    assert refused == {
        "cpu_topology": topology,
        "cpu_topology_preferred": topology,
        "cpu_topology_maximum": topology,
        "serial_ports": ("serial_port_count_invalid", "hw:serial_port_count"),
        "pmu": ("pmu_conflict", "hw:pmu"),
    }


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '{"id": "x"}', '{"id": "x", "flavor": {"vcpus": 0, "memory_mb": 1}}']
)
def test_a_malformed_line_is_answered_with_its_number(line: str) -> None:
    answer = answer_guest(line, 7)
    assert set(answer) == {"id", "error"}
    assert answer["error"]["line"] == 7


def test_a_build_is_refused_for_anything_that_flavor_and_image_contradict_each_other_in() -> None:
    flavor = Flavor("f", 4, 4096, extra_specs={"hw:pci_numa_affinity_policy": "socket"})
    refuse_contradictions(flavor, Image("i"))
    image = Image("i", properties={"hw_pci_numa_affinity_policy": "required"})
    with pytest.raises(Rejected) as refusal:
        refuse_contradictions(flavor, image)
    assert refusal.value.code == "pci_numa_affinity_policy_conflict"
