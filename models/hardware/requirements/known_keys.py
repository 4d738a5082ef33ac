"""Every extra spec and image property that is known, and what becomes of each.

Nothing that is accepted is ignored: a key is acted on, refused because no host can grant it yet,
or kept with a warning that says that it has no effect. What is in none of these tables is
refused by name (`extra_specs.py`). `docs/extra-specs.md` is made from here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What becomes of a key."""

    ACTED_ON = "acted on"
    REFUSED = "refused"
    WARNED = "kept with a warning"
    INFORMATION = "kept as information"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """What becomes of a key and why; values in `idle` ask for nothing, so they are never refused.

    With `flag`, so are all values that are not a spelling of yes.
    """

    effect: Effect
    why: str
    idle: tuple[str, ...] = ()
    flag: bool = False


_PLACED: Final = KnownKey(Effect.ACTED_ON, "decides which hosts, CPUs, pages and devices are used")
_SHOWN: Final = KnownKey(
    Effect.WARNED,
    "checked against image and flavor, but guests do not get virtual hardware of this kind yet",
)
_MODEL: Final = KnownKey(
    Effect.WARNED, "names virtual hardware that the hypervisor chooses by itself so far"
)
_LIMIT: Final = KnownKey(Effect.WARNED, "no host limits its guests so far")
_LOCKED: Final = KnownKey(
    Effect.WARNED, "needs and gets pages of its own, but no host locks them in memory yet"
)
_REALTIME: Final = KnownKey(
    Effect.WARNED, "decides which vCPUs are pinned, but no host gives them realtime priority yet"
)
_TPM: Final = KnownKey(Effect.REFUSED, "no host can give its guests a virtual TPM")
_ENCRYPTED: Final = KnownKey(
    Effect.REFUSED, "no host can encrypt the memory of its guests", flag=True
)
_ENCRYPTED_HOW: Final = KnownKey(Effect.REFUSED, "no host can encrypt the memory of its guests")
_DISK: Final = KnownKey(Effect.REFUSED, "no host can encrypt ephemeral disks", flag=True)
_DISK_HOW: Final = KnownKey(Effect.REFUSED, "no host can encrypt ephemeral disks")
_SECURE_BOOT: Final = KnownKey(
    Effect.REFUSED, "no host can boot its guests securely", ("disabled", "optional")
)
_PMEM: Final = KnownKey(Effect.REFUSED, "no host has persistent memory to give")
_MEMPOLICY: Final = KnownKey(
    Effect.REFUSED,
    "memory always comes from the NUMA cells that are claimed, strictly; leave it out",
)
_ACCELERATOR: Final = KnownKey(
    Effect.REFUSED, "no host has accelerators by profile; pci_passthrough:alias asks for devices"
)
_SIGNED: Final = KnownKey(Effect.REFUSED, "no host verifies the signatures of images")
_DRIVE: Final = KnownKey(
    Effect.REFUSED, "no host can give its guests a config drive", ("optional",)
)
_VOLUMES: Final = KnownKey(Effect.REFUSED, "there are no volumes to map")
_HYPERVISOR: Final = KnownKey(
    Effect.REFUSED,
    "an image chooses no hypervisor; a flavor does with capabilities:hypervisor_type",
)
_DIRECT: Final = KnownKey(Effect.REFUSED, "no host boots a kernel from beside the image")
_DESCRIPTION: Final = KnownKey(Effect.INFORMATION, "says what is in the image and asks for nothing")

_EITHER: Final[Mapping[str, KnownKey]] = {
    **dict.fromkeys(
        (
            "cpu_policy",
            "cpu_thread_policy",
            "cpu_realtime_mask",
            "mem_page_size",
            "numa_nodes",
            "pci_numa_affinity_policy",
        ),
        _PLACED,
    ),
    **dict.fromkeys(
        (
            *("cpu_sockets", "cpu_cores", "cpu_threads"),
            *("cpu_max_sockets", "cpu_max_cores", "cpu_max_threads"),
            *("pmu", "serial_port_count", "vif_multiqueue_enabled"),
        ),
        _SHOWN,
    ),
    **dict.fromkeys(
        (
            *("boot_menu", "input_bus", "maxphysaddr_bits", "maxphysaddr_mode"),
            *("redirected_usb_ports", "sound_model", "usb_model", "viommu_model"),
            *("virtio_packed_ring", "watchdog_action"),
        ),
        _MODEL,
    ),
    "locked_memory": _LOCKED,
    "mem_encryption": _ENCRYPTED,
    "mem_encryption_model": _ENCRYPTED_HOW,
    "ephemeral_encryption": _DISK,
    "ephemeral_encryption_format": _DISK_HOW,
    "tpm_model": _TPM,
    "tpm_version": _TPM,
    "numa_mempolicy": _MEMPOLICY,
}
"""What a flavor says as `hw:NAME` and an image as `hw_NAME`."""

NUMBERED: Final = ("numa_cpus", "numa_mem")
"""What is said for each guest NUMA cell: `hw:NAME.N` or `hw_NAME.N`."""

_QUOTAS: Final = (
    *("cpu_period", "cpu_quota", "cpu_shares"),
    *("cpu_limit", "cpu_reservation", "cpu_shares_level", "cpu_shares_share"),
    *("memory_limit", "memory_reservation", "memory_shares_level", "memory_shares_share"),
    *(
        f"disk_{way}_{what}_sec{burst}"
        for way in ("read", "write", "total")
        for what in ("bytes", "iops")
        for burst in ("", "_max", "_max_length")
    ),
    *("disk_io_limit", "disk_io_reservation", "disk_io_shares_level", "disk_io_shares_share"),
    *(
        f"vif_{way}_{what}"
        for way in ("inbound", "outbound")
        for what in ("average", "burst", "peak")
    ),
    *("vif_limit", "vif_reservation", "vif_shares_level", "vif_shares_share"),
)

EXTRA_SPECS: Final[Mapping[str, KnownKey]] = {
    **{f"hw:{name}": known for name, known in _EITHER.items()},
    "hw:cpu_dedicated_mask": _PLACED,
    "hw:emulator_threads_policy": _PLACED,
    "hw:cpu_realtime": _REALTIME,
    "hw:hide_hypervisor_id": _MODEL,
    "hw:pmem": _PMEM,
    "hw:tpm_secret_security": _TPM,
    "hw_rng:allowed": _MODEL,
    "hw_rng:rate_bytes": _MODEL,
    "hw_rng:rate_period": _MODEL,
    "hw_video:ram_max_mb": _MODEL,
    "os:secure_boot": _SECURE_BOOT,
    "accel:device_profile": _ACCELERATOR,
    "group_policy": _PLACED,
    "pci_passthrough:alias": _PLACED,
    **{f"quota:{name}": _LIMIT for name in _QUOTAS},
}
"""Extra specs of flavors by their whole name."""

SCOPES: Final[Mapping[str, KnownKey]] = {
    "aggregate_instance_extra_specs": KnownKey(
        Effect.ACTED_ON, "a condition on the metadata of the host's aggregates; any name"
    ),
    "capabilities": KnownKey(Effect.ACTED_ON, "a condition on what the host says of itself"),
    "resources": KnownKey(Effect.ACTED_ON, "replaces or adds an amount of a resource class"),
    "trait": KnownKey(Effect.ACTED_ON, "a trait that the host must have, or must not have"),
}
"""Extra specs of the form SCOPE:NAME with names that are not ours; the last two also numbered."""

PROPERTIES: Final[Mapping[str, KnownKey]] = {
    **{f"hw_{name}": known for name, known in _EITHER.items()},
    "hw_architecture": _PLACED,
    "hw_numa_cpus": _PLACED,
    "hw_numa_mem": _PLACED,
    "traits_required": _PLACED,
    "hw_ephemeral_encryption_secret_uuid": _DISK_HOW,
    "os_secure_boot": _SECURE_BOOT,
    **dict.fromkeys(
        (
            *("hw_auto_disk_config", "hw_cdrom_bus", "hw_device_id", "hw_disk_bus"),
            *("hw_disk_discard", "hw_disk_type", "hw_emulation_architecture", "hw_firmware_type"),
            *("hw_firmware_stateless", "hw_floppy_bus", "hw_ipxe_boot", "hw_machine_type"),
            *("hw_iommu_model", "hw_pointer_model", "hw_qemu_guest_agent", "hw_rescue_bus"),
            *("hw_rescue_device", "hw_rng_model", "hw_scsi_model", "hw_time_hpet"),
            *("hw_video_model", "hw_video_ram", "hw_vif_model", "hw_vm_mode"),
            *("img_hide_hypervisor_id", "img_root_device_name", "os_require_quiesce"),
        ),
        _MODEL,
    ),
    **dict.fromkeys(
        (
            *("os_admin_user", "os_distro", "os_skip_agent_inject_files_at_boot"),
            *("os_skip_agent_inject_ssh", "os_type", "os_version", "img_bittorrent"),
            *("img_cache_in_nova", "img_compression_level", "img_linked_clone"),
            *("img_owner_id", "img_use_agent", "img_version"),
        ),
        _DESCRIPTION,
    ),
    "img_config_drive": _DRIVE,
    **dict.fromkeys(("img_block_device_mapping", "img_bdm_v2", "img_mappings"), _VOLUMES),
    **dict.fromkeys(("img_hv_type", "img_hv_requested_version"), _HYPERVISOR),
    **dict.fromkeys(
        (
            *("img_signature", "img_signature_hash_method"),
            *("img_signature_certificate_uuid", "img_signature_key_type"),
        ),
        _SIGNED,
    ),
    **dict.fromkeys(("os_command_line", "kernel_id", "ramdisk_id"), _DIRECT),
}
"""Properties of images by their whole name."""

ANYTHING_ELSE: Final = KnownKey(Effect.WARNED, "nothing here reads it")
"""Properties of images outside hw_ are what their owners make of them."""


def rows() -> Iterator[tuple[str, str, KnownKey]]:
    """Yield where a key stands (flavor, image), its name, and what becomes of it, in order."""
    for name, known in sorted(EXTRA_SPECS.items()):
        yield "flavor", name, known
    for name in NUMBERED:
        yield "flavor", f"hw:{name}.N", _PLACED
    for scope, known in SCOPES.items():
        yield "flavor", f"{scope}:NAME", known
    for name, known in sorted(PROPERTIES.items()):
        yield "image", name, known
    for name in NUMBERED:
        yield "image", f"hw_{name}.N", _PLACED
    yield "image", "trait:NAME", SCOPES["trait"]
    yield "image", "any other name outside hw_", ANYTHING_ELSE
