"""Every value and combination of a flavor and an image that means nothing, with code and key."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Rejected
from tests.hardware.builders import topology_for

Specs = dict[str, str]
Properties = dict[str, Any]

PINNED = {"hw:cpu_policy": "dedicated"}
MIXED = {"hw:cpu_policy": "mixed"}
TWO_NODES = {"hw:numa_nodes": "2"}
MAPS = {
    "hw:numa_cpus.0": "0",
    "hw:numa_cpus.1": "1-3",
    "hw:numa_mem.0": "1024",
    "hw:numa_mem.1": "3072",
}

REJECTIONS: list[tuple[str, str, Specs, Properties]] = [
    ("cpu_policy_invalid", "hw:cpu_policy", {"hw:cpu_policy": "own"}, {}),
    ("cpu_policy_invalid", "hw_cpu_policy", {}, {"hw_cpu_policy": "own"}),
    ("cpu_policy_invalid", "hw_cpu_policy", PINNED, {"hw_cpu_policy": ""}),
    (
        "cpu_policy_conflict",
        "hw:cpu_policy",
        {"hw:cpu_policy": "shared"},
        {"hw_cpu_policy": "dedicated"},
    ),
    (
        "cpu_policy_conflict",
        "hw:cpu_policy",
        {"hw:cpu_policy": "shared"},
        {"hw_cpu_policy": "mixed"},
    ),
    ("cpu_policy_conflict", "hw:cpu_policy", MIXED, {"hw_cpu_policy": "dedicated"}),
    (
        "cpu_thread_policy_invalid",
        "hw:cpu_thread_policy",
        {**PINNED, "hw:cpu_thread_policy": "x"},
        {},
    ),
    ("cpu_thread_policy_invalid", "hw_cpu_thread_policy", PINNED, {"hw_cpu_thread_policy": "x"}),
    (
        "cpu_thread_policy_conflict",
        "hw:cpu_thread_policy",
        {**PINNED, "hw:cpu_thread_policy": "require"},
        {"hw_cpu_thread_policy": "prefer"},
    ),
    (
        "cpu_thread_policy_needs_dedicated",
        "hw:cpu_thread_policy",
        {"hw:cpu_thread_policy": "prefer"},
        {},
    ),
    (
        "cpu_thread_policy_needs_dedicated",
        "trait:HW_CPU_HYPERTHREADING",
        {"trait:HW_CPU_HYPERTHREADING": "required"},
        {},
    ),
    (
        "hyperthreading_trait_conflict",
        "trait:HW_CPU_HYPERTHREADING",
        {**PINNED, "hw:cpu_thread_policy": "require", "trait:HW_CPU_HYPERTHREADING": "required"},
        {},
    ),
    (
        "hyperthreading_trait_conflict",
        "traits_required",
        {**PINNED, "hw:cpu_thread_policy": "require"},
        {"traits_required": ["HW_CPU_HYPERTHREADING"]},
    ),
    (
        "hyperthreading_trait_conflict",
        "trait:HW_CPU_HYPERTHREADING",
        {
            **PINNED,
            "trait1:HW_CPU_HYPERTHREADING": "forbidden",
            "trait:HW_CPU_HYPERTHREADING": "required",
        },
        {},
    ),
    (
        "trait_invalid",
        "trait:HW_CPU_HYPERTHREADING",
        {**PINNED, "trait:HW_CPU_HYPERTHREADING": "maybe"},
        {},
    ),
    ("cpu_resources_conflict", "resources:PCPU", {**PINNED, "resources:PCPU": "4"}, {}),
    (
        "cpu_resources_conflict",
        "resources1:VCPU",
        {"resources1:VCPU": "4"},
        {"hw_cpu_policy": "shared"},
    ),
    (
        "cpu_resources_conflict",
        "resources:PCPU",
        {"resources:VCPU": "2", "resources:PCPU": "2"},
        {},
    ),
    ("cpu_resources_mismatch", "resources:PCPU", {"resources:PCPU": "3"}, {}),
    (
        "cpu_resources_mismatch",
        "resources:PCPU",
        {"resources:PCPU": "4", "hw:emulator_threads_policy": "isolate"},
        {},
    ),
    ("cpu_resources_invalid", "resources:PCPU", {"resources:PCPU": "-4"}, {}),
    ("cpu_resources_invalid", "resources:VCPU", {"resources:VCPU": "many"}, {}),
    (
        "cpu_thread_policy_needs_dedicated",
        "hw_cpu_thread_policy",
        {"resources:VCPU": "4"},
        {"hw_cpu_thread_policy": "require"},
    ),
    (
        "emulator_threads_policy_invalid",
        "hw:emulator_threads_policy",
        {**PINNED, "hw:emulator_threads_policy": "own"},
        {},
    ),
    (
        "emulator_threads_policy_needs_dedicated",
        "hw:emulator_threads_policy",
        {"hw:emulator_threads_policy": "isolate"},
        {},
    ),
    (
        "dedicated_mask_needs_mixed",
        "hw:cpu_dedicated_mask",
        {**PINNED, "hw:cpu_dedicated_mask": "0"},
        {},
    ),
    ("dedicated_mask_needs_mixed", "hw:cpu_dedicated_mask", {"hw:cpu_dedicated_mask": "0"}, {}),
    (
        "dedicated_mask_invalid",
        "hw:cpu_dedicated_mask",
        {**MIXED, "hw:cpu_dedicated_mask": "x"},
        {},
    ),
    (
        "dedicated_mask_invalid",
        "hw:cpu_dedicated_mask",
        {**MIXED, "hw:cpu_dedicated_mask": "0-3"},
        {},
    ),
    (
        "dedicated_mask_invalid",
        "hw:cpu_dedicated_mask",
        {**MIXED, "hw:cpu_dedicated_mask": "^0-3"},
        {},
    ),
    (
        "dedicated_mask_invalid",
        "hw:cpu_dedicated_mask",
        {**MIXED, "hw:cpu_dedicated_mask": "3-4"},
        {},
    ),
    ("mixed_needs_one_mask", "hw:cpu_policy", MIXED, {}),
    (
        "mixed_needs_one_mask",
        "hw:cpu_dedicated_mask",
        {
            **MIXED,
            "hw:cpu_dedicated_mask": "0",
            "hw:cpu_realtime": "1",
            "hw:cpu_realtime_mask": "1",
        },
        {},
    ),
    ("realtime_mask_invalid", "hw:cpu_realtime", {**PINNED, "hw:cpu_realtime": "yes"}, {}),
    (
        "realtime_mask_invalid",
        "hw:cpu_realtime_mask",
        {**PINNED, "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "7"},
        {},
    ),
    (
        "realtime_mask_invalid",
        "hw:cpu_realtime_mask",
        {**PINNED, "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0-3"},
        {},
    ),
    (
        "realtime_mask_invalid",
        "hw_cpu_realtime_mask",
        {**PINNED, "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "1"},
        {"hw_cpu_realtime_mask": "0-3"},
    ),
    (
        "realtime_needs_dedicated",
        "hw:cpu_realtime",
        {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "1"},
        {},
    ),
    ("numa_nodes_invalid", "hw:numa_nodes", {"hw:numa_nodes": "0"}, {}),
    ("numa_nodes_invalid", "hw:numa_nodes", {"hw:numa_nodes": "-1"}, {}),
    ("numa_nodes_invalid", "hw:numa_nodes", {"hw:numa_nodes": "two"}, {}),
    ("numa_nodes_invalid", "hw_numa_nodes", {}, {"hw_numa_nodes": 0}),
    ("numa_nodes_invalid", "hw:numa_nodes", {"hw:numa_nodes": "257"}, {}),
    ("numa_nodes_conflict", "hw:numa_nodes", TWO_NODES, {"hw_numa_nodes": 2}),
    ("numa_asymmetric", "hw:numa_nodes", {"hw:numa_nodes": "3"}, {}),
    ("numa_asymmetric", "hw_numa_nodes", {}, {"hw_numa_nodes": "8"}),
    ("numa_map_incomplete", "hw:numa_cpus.0", {**PINNED, "hw:numa_cpus.0": "0-3"}, {}),
    ("numa_map_incomplete", "hw:numa_mem.1", {**MAPS, "hw:numa_nodes": "3"}, {}),
    ("numa_map_out_of_range", "hw:numa_cpus.1", {**MAPS, "hw:numa_nodes": "1"}, {}),
    (
        "numa_map_gap",
        "hw:numa_cpus.1",
        {"hw:numa_nodes": "1", "hw:numa_cpus.1": "0", "hw:numa_mem.1": "4096"},
        {},
    ),
    (
        "numa_map_gap",
        "hw:numa_cpus.2",
        {**TWO_NODES, "hw:numa_cpus.0": "0", "hw:numa_cpus.2": "1-3"},
        {},
    ),
    ("numa_map_unused", "hw:numa_cpus.0", MAPS, {}),
    ("numa_map_unused", "hw_numa_mem.0", {}, {"hw_numa_mem.0": "4096"}),
    ("numa_map_key_invalid", "hw:numa_cpus.x", {**TWO_NODES, "hw:numa_cpus.x": "1"}, {}),
    ("numa_map_key_invalid", "hw:numa_mem.01", {**TWO_NODES, "hw:numa_mem.01": "1"}, {}),
    (
        "numa_cpus_conflict",
        "hw:numa_cpus.0",
        {**TWO_NODES, **MAPS},
        {"hw_numa_cpus.0": "0", "hw_numa_cpus.1": "1-3"},
    ),
    ("numa_mem_conflict", "hw:numa_mem.0", {**TWO_NODES, **MAPS}, {"hw_numa_mem": [1024, 3072]}),
    ("numa_cpus_invalid", "hw:numa_cpus.1", {**TWO_NODES, **MAPS, "hw:numa_cpus.1": "1-x"}, {}),
    ("numa_cpus_invalid", "hw_numa_cpus", TWO_NODES, {"hw_numa_cpus": [[-1], [0]]}),
    ("numa_cpus_invalid", "hw_numa_cpus", TWO_NODES, {"hw_numa_cpus": "0-3"}),
    ("numa_mem_invalid", "hw:numa_mem.0", {**TWO_NODES, **MAPS, "hw:numa_mem.0": "-1"}, {}),
    (
        "numa_cpu_out_of_range",
        "hw:numa_cpus.1",
        {**TWO_NODES, **MAPS, "hw:numa_cpus.1": "1-4"},
        {},
    ),
    ("numa_cpu_duplicate", "hw:numa_cpus.1", {**TWO_NODES, **MAPS, "hw:numa_cpus.1": "0-3"}, {}),
    ("numa_cpus_unassigned", "hw:numa_cpus.1", {**TWO_NODES, **MAPS, "hw:numa_cpus.1": "1"}, {}),
    ("numa_memory_mismatch", "hw:numa_mem.0", {**TWO_NODES, **MAPS, "hw:numa_mem.1": "1"}, {}),
    ("mem_page_size_forbidden", "hw_mem_page_size", {}, {"hw_mem_page_size": "2MB"}),
    (
        "mem_page_size_forbidden",
        "hw:mem_page_size",
        {"hw:mem_page_size": "2048"},
        {"hw_mem_page_size": "2048"},
    ),
    (
        "mem_page_size_forbidden",
        "hw:mem_page_size",
        {"hw:mem_page_size": "small"},
        {"hw_mem_page_size": "small"},
    ),
    (
        "mem_page_size_invalid",
        "hw_mem_page_size",
        {"hw:mem_page_size": "any"},
        {"hw_mem_page_size": "2 parsecs"},
    ),
    ("locked_memory_needs_page_size", "hw:locked_memory", {"hw:locked_memory": "true"}, {}),
    ("locked_memory_needs_page_size", "hw_locked_memory", {}, {"hw_locked_memory": True}),
    (
        "locked_memory_conflict",
        "hw:locked_memory",
        {"hw:locked_memory": "no", "hw:mem_page_size": "any"},
        {"hw_locked_memory": "yes"},
    ),
    ("firmware_type_invalid", "hw_firmware_type", {}, {"hw_firmware_type": "coreboot"}),
    ("tpm_model_invalid", "hw_tpm_model", {}, {"hw_tpm_model": "dtpm"}),
    ("secure_boot_invalid", "os_secure_boot", {}, {"os_secure_boot": "always"}),
    ("rescue_bus_invalid", "hw_rescue_bus", {}, {"hw_rescue_bus": "punch-card"}),
]


@pytest.mark.parametrize(
    ("code", "key", "specs", "properties"),
    REJECTIONS,
    ids=[f"{code}-{key}-{n}" for n, (code, key, _, _) in enumerate(REJECTIONS)],
)
def test_what_means_nothing_is_refused_with_a_code_and_the_key(
    code: str, key: str, specs: Specs, properties: Properties
) -> None:
    with pytest.raises(Rejected) as refusal:
        topology_for(specs, properties)
    assert (refusal.value.code, refusal.value.key) == (code, key)
    assert refusal.value.message.startswith(key)
    assert "\n" not in refusal.value.message
