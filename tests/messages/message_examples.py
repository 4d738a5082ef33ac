"""One message of each kind between our own processes, with every field set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.messages.examples import EXAMPLES, INSTANCE_ID, OPERATION_ID
from models.messages.json_schemas import INTERNAL, PUBLIC

REQUEST_ID = "5f0d3c1e-8b1d-4c57-9f0e-2f6b8c1d7a10"
_TOKEN = {
    "operation_id": OPERATION_ID,
    "step": "spawn",
    "attempt": 1,
    "sequence": 3,
    "fence": 7,
    "root_id": REQUEST_ID,
}
_PLACEMENT = {
    "cells": [
        {
            "id": 0,
            "host_cell": 1,
            "cpuset": [],
            "pcpuset": [0, 1],
            "memory": 1024,
            "pagesize": None,
            "cpu_pinning": {"0": 10, "1": 11},
            "cpuset_reserved": [],
        }
    ]
}
_DOMAIN = {
    "instance_id": INSTANCE_ID,
    "fence": 7,
    "power_state": "running",
    "placement": _PLACEMENT,
    "memory_mib": 1024,
    "vcpus": 2,
    "disk_gb": 20,
}
_SPAWN = {
    "version": 1,
    "name": "db-1",
    "vcpus": 2,
    "memory_mib": 1024,
    "disk_gb": 20,
    "root_gib": 20,
    "ephemeral_gib": 0,
    "swap_mib": 0,
    "image": {
        "id": "debian-13",
        "source": "https://images.example.org/debian-13.qcow2",
        "format": "qcow2",
        "checksum": "sha256:3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
        "size_bytes": 1000000,
        "virtual_size_bytes": 2147483648,
    },
    "placement": _PLACEMENT,
    "hardware": {
        "architecture": "x86_64",
        "machine_type": "q35",
        "firmware": "uefi",
        "secure_boot": True,
        "stateless_firmware": False,
        "boot_menu": False,
        "cpu_topology": {"sockets": 1, "cores": 2, "threads": 1},
        "cpu_share": {"shares": 1024, "quota_us": 50000, "period_us": 100000},
        "realtime_vcpus": "1",
        "pmu": True,
        "clock": "localtime",
        "hpet": False,
        "hyperv": True,
        "hide_hypervisor": False,
        "locked_memory": True,
        "tpm": {"version": "2.0", "model": "tpm-crb"},
        "watchdog": "reset",
        "random_numbers": {"rate_bytes": 1024, "rate_period_ms": 1000},
        "serial_ports": 1,
        "video": "virtio",
        "video_memory_mib": 16,
        "pointer": "usbtablet",
        "sound": "ich6",
        "disk_bus": "virtio",
        "cdrom_bus": "sata",
        "scsi_controller": "virtio-scsi",
        "discard": True,
        "disk_limits": {
            "total_bytes": 1000000,
            "read_bytes": 500000,
            "write_bytes": 500000,
            "total_operations": 100,
            "read_operations": 50,
            "write_operations": 50,
        },
        "interface": "virtio",
        "guest_agent": True,
        "packed_ring": False,
    },
    "project_id": "demo",
    "metadata": {"role": "db"},
    "root_disk": {
        "origin": "snapshot",
        "disk": {
            "id": "2f1c7a52-5f43-5a4e-9f3f-0b6a7a4d2a10",
            "checksum": "sha256:3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
            "ticket": {"content": "data"},
        },
    },
    "power": "running",
}
_HARDWARE = {
    "cells": [
        {
            "id": 0,
            "socket": 0,
            "cpuset": [0, 1],
            "pcpuset": [2, 3],
            "memory": 4096,
            "siblings": [[0, 2], [1, 3]],
            "mempages": [[4, 1_048_576, 0, 0]],
            "cpu_usage": 0,
            "memory_usage": 0,
            "pinned_cpus": [],
        }
    ]
}
_AUDIT: dict[str, Any] = {
    "version": 1,
    "host": "rack1-07",
    "boot_id": "b7",
    "sequence": 12,
    "domains": [_DOMAIN],
    "accounting_degraded": [INSTANCE_ID],
}
_DATABASE = "3f0c5b7e-52d8-4a8e-9d0c-6a3a1f9be001"
_OBEYED = {"database": _DATABASE, "generation": 812, "outdated": False}
_ERROR = {"kind": "HostRefused", "code": "disk_full", "message": "no room", "data": {"free_gb": 1}}

INTERNAL_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "scheduler.select_hosts": {
        "version": 1,
        "token": _TOKEN,
        "host_requests": [
            {
                "instance_id": INSTANCE_ID,
                "operation_id": OPERATION_ID,
                "migration_id": "0c6c8b1e-8d69-4d2c-9a60-3b1f6d0e2a77",
                "force": False,
            }
        ],
        "alternates": ["rack1-08"],
        "ignored": ["rack1-09"],
    },
    "compute.instruction": {
        "version": 1,
        "token": _TOKEN,
        "instance_id": INSTANCE_ID,
        "verb": "spawn",
        "args": _SPAWN,
        "expires_at": 1_700_000_600.0,
        "host": "rack1-07",
        "worker_id": "w3",
        "database": _DATABASE,
    },
    "compute.spawn": _SPAWN,
    "reports.reply": {
        "version": 1,
        "token": _TOKEN,
        "sender": "rack1-07",
        "outcome": "refused",
        "result": {"power": "running"},
        "error": _ERROR,
    },
    "reports.progress": {
        "version": 1,
        "token": _TOKEN,
        "sender": "rack1-07",
        "percent": 40,
    },
    "reports.refused": {
        "version": 1,
        "sender": "rack1-07",
        "reason": "field_missing: token is missing",
        "refused_task": "compute.spawn",
        "message_id": "0b9d7c1e-3f55-4a0e-8a94-7d1b64f0c1d2",
        "root_id": OPERATION_ID,
        "parent_id": OPERATION_ID,
        "body": "{}",
    },
    "reports.hello": {
        **_AUDIT,
        "boot": 4,
        "worker_id": "w3",
        "machine_id": "m9",
        "machine_boot": "k1",
        "replaces": "b6",
        "notes": [{"code": "journal_missing", "message": "the journal is new"}],
        "hypervisor": "simulated",
        "hardware": _HARDWARE,
        "disk_gb": 1000,
        "reserved": {"memory_mib": 512, "disk_gb": 10, "vcpus": 1},
        "traits": ["HW_CPU_X86_AVX2"],
        "obeys": _OBEYED,
    },
    "reports.heartbeat": {
        "version": 1,
        "host": "rack1-07",
        "boot_id": "b7",
        "sequence": 13,
        "heard_at": 1_767_225_600.0,
        "running": [
            {
                "verb": "snapshot",
                "for_s": 41.5,
                "instance_id": "7c0e7fd2-6a5b-5f2c-9d5a-1f6b6f0d9a11",
                "operation_id": "6f9619ff-8b86-4d11-b42d-00c04fc964ff",
            }
        ],
        "hangs": False,
        "obeys": _OBEYED,
    },
    "compute.canary": {
        "version": 1,
        "sent_at": 1_767_225_600.0,
        "database": _DATABASE,
        "generation": 812,
    },
    "reports.manifest": _AUDIT,
}

ALL_KINDS = {**PUBLIC, **INTERNAL}
ALL_EXAMPLES = {**EXAMPLES, **INTERNAL_EXAMPLES}
