"""One example of every public message, with every field set: published with the schemas.

The tests check each against its class and its schema, and that no field is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OPERATION_ID: Final = "5f0c9a1e-7f1b-4c1e-9d52-0a4f3f0d8b11"
INSTANCE_ID: Final = "c2b7e0a4-50b1-5d0e-8a3e-6f1d2c9b7a55"

_COMMON: Final[dict[str, Any]] = {
    "version": 1,
    "context": {"project_id": "demo", "user_id": "ann", "request_id": "req-42"},
    "deadline_s": 900,
}
_OF_INSTANCE: Final = {**_COMMON, "instance_id": INSTANCE_ID}

_FLAVOR: Final[dict[str, Any]] = {
    "name": "pinned-4",
    "vcpus": 4,
    "memory_mb": 8192,
    "root_gb": 20,
    "ephemeral_gb": 0,
    "swap_mb": 0,
    "extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"},
}
_IMAGE: Final[dict[str, Any]] = {
    "id": "debian-13",
    "name": "Debian 13",
    "properties": {"hw_machine_type": "q35"},
    "min_disk_gb": 4,
    "min_memory_mb": 512,
    "source": "https://images.example.org/debian-13.qcow2",
    "format": "qcow2",
    "checksum": "sha256:3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
    "size_bytes": 1_000_000,
    "virtual_size_bytes": 2_147_483_648,
}
_INSTANCE: Final[dict[str, Any]] = {
    "name": "db-1",
    "flavor": _FLAVOR,
    "image": _IMAGE,
    "block_devices": [],
    "networks": ["none"],
    "availability_zone": "zone-a",
    "host": "rack1-07",
    "group": "db-spread",
    "metadata": {"role": "db"},
    "tags": ["blue"],
    "scheduler_hints": {"different_host": ["1d1f0f0e-64c7-4b39-8a6b-2d5f8d7e9c10"]},
    "key_name": None,
    "security_groups": [],
    "config_drive": False,
}
_FAULT: Final[dict[str, Any]] = {
    "kind": "NoValidHost",
    "code": "no_valid_host",
    "message": "none of 3 hosts takes it: cpu_dedicated_too_few on 3",
    "key": "instance.flavor",
    "data": {"reasons": {"cpu_dedicated_too_few": 3}},
}

EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "conductor.build_instances": {**_COMMON, "instance": _INSTANCE, "count": 1},
    "conductor.delete_instance": _OF_INSTANCE,
    "conductor.start_instance": _OF_INSTANCE,
    "conductor.stop_instance": _OF_INSTANCE,
    "conductor.pause_instance": _OF_INSTANCE,
    "conductor.unpause_instance": _OF_INSTANCE,
    "conductor.suspend_instance": _OF_INSTANCE,
    "conductor.resume_instance": _OF_INSTANCE,
    "conductor.reboot_instance": {**_OF_INSTANCE, "hard": True},
    "conductor.migrate_instance": {**_OF_INSTANCE, "host": "rack2-03"},
    "conductor.resize_instance": {**_OF_INSTANCE, "flavor": _FLAVOR, "host": "rack2-03"},
    "conductor.confirm_resize": _OF_INSTANCE,
    "conductor.revert_resize": _OF_INSTANCE,
    "conductor.live_migrate_instance": {
        **_OF_INSTANCE,
        "host": "rack2-03",
        "block_migration": True,
        "policy": {
            "bandwidth_mib_s": 500,
            "downtime_ms": 300,
            "auto_converge": True,
            "post_copy": False,
            "timeout_s": 900,
            "on_timeout": "abort",
        },
    },
    "conductor.rebuild_instance": {**_OF_INSTANCE, "image": _IMAGE},
    "conductor.evacuate_instance": {**_OF_INSTANCE, "host": "rack2-03", "force": False},
    "conductor.shelve_instance": {**_OF_INSTANCE, "offload": True},
    "conductor.unshelve_instance": {
        **_OF_INSTANCE,
        "availability_zone": "zone-a",
        "host": "rack2-03",
    },
    "conductor.snapshot_instance": {**_OF_INSTANCE, "image_name": "db-1 before upgrade"},
    "conductor.cache_images": {**_COMMON, "aggregate": "rack1", "images": ["debian-13"]},
    "conductor.read_console": {
        **_COMMON,
        "guest_id": INSTANCE_ID,
        "offset": 4_096,
        "most_bytes": 16_384,
    },
    "conductor.destroy_orphan": {**_COMMON, "host": "rack2-03", "guest_id": INSTANCE_ID},
    "conductor.replay_operation": {**_COMMON, "operation_id": OPERATION_ID, "dry_run": True},
    "conductor.define_entry": {**_COMMON, "entry": "flavor", "body": _FLAVOR},
    "conductor.remove_entry": {**_COMMON, "entry": "flavor", "name": "pinned-4"},
    "conductor.operation_ended": {
        "version": 1,
        "operation_id": OPERATION_ID,
        "kind": "build_instances",
        "state": "FAILED",
        "result": {"instances": [INSTANCE_ID]},
        "error": _FAULT,
    },
    "conductor.operation_notified": {
        "version": 1,
        "at": 1_700_000_000.25,
        "event": "error",
        "operation_id": OPERATION_ID,
        "kind": "live_migrate_instance",
        "state": "FAILED",
        "project_id": "demo",
        "user_id": "ann",
        "request_id": "req-42",
        "instance": {
            "id": INSTANCE_ID,
            "name": "db-1",
            "state": "active",
            "host": "rack1-07",
        },
        "error": {"code": "no_valid_host", "message": "none of 3 hosts takes it"},
    },
    "conductor.request_refused": {
        "version": 1,
        "operation_id": OPERATION_ID,
        "state": "REJECTED",
        "error": {
            "kind": "Rejected",
            "code": "duplicate_id",
            "message": f"operation {OPERATION_ID} exists with another body; the first one stands",
            "key": "id",
            "data": {},
        },
    },
}
"""Name of a message to the body of one, in its current version."""
