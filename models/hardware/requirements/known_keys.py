"""Every extra spec and image property that is known, and what becomes of each.

Nothing that is accepted is ignored: a key is acted on, refused because no host can grant it, or
says something of an image and asks for nothing. What is in none of these tables is refused by
name (`extra_specs.py`). `docs/extra-specs.md` is made from here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What becomes of a key."""

    ACTED_ON = "acted on"
    REFUSED = "refused"
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
_GUEST: Final = KnownKey(Effect.ACTED_ON, "the guest finds it so, on a host that can give it")
_LIMIT: Final = KnownKey(Effect.ACTED_ON, "its host limits the guest so")
_NO_LIMIT: Final = KnownKey(Effect.REFUSED, "no host limits its guests in this way")
_QUEUES: Final = KnownKey(Effect.REFUSED, "no guest has network interfaces yet", flag=True)
_NO_DRIVE: Final = KnownKey(
    Effect.ACTED_ON, "only hosts that can give it are used; no guest has such a drive yet"
)
_NO_INTERFACE: Final = KnownKey(
    Effect.ACTED_ON, "only hosts that can give it are used; no guest has network interfaces yet"
)
_FLOPPY: Final = KnownKey(Effect.REFUSED, "no guest has a floppy drive beside its disks")
_NOT_GIVEN: Final = KnownKey(Effect.REFUSED, "no host gives its guests hardware of this kind")
_NOT_DONE: Final = KnownKey(Effect.REFUSED, "no host does this for its guests", flag=True)
_RESCUE: Final = KnownKey(Effect.INFORMATION, "says how to rescue it, which is not done here yet")
_TPM_SECRET: Final = KnownKey(Effect.REFUSED, "the state of a virtual TPM is its host's alone")
_ENCRYPTED: Final = KnownKey(
    Effect.REFUSED, "no host can encrypt the memory of its guests", flag=True
)
_ENCRYPTED_HOW: Final = KnownKey(Effect.REFUSED, "no host can encrypt the memory of its guests")
_DISK: Final = KnownKey(Effect.REFUSED, "no host can encrypt ephemeral disks", flag=True)
_DISK_HOW: Final = KnownKey(Effect.REFUSED, "no host can encrypt ephemeral disks")
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
_WINDOWS: Final = KnownKey(
    Effect.ACTED_ON,
    "windows: a clock in local time, and under KVM what Hyper-V tells it; others ask for nothing",
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
            *("boot_menu", "input_bus", "locked_memory", "pmu", "serial_port_count"),
            *("sound_model", "tpm_model", "tpm_version"),
            *("virtio_packed_ring", "watchdog_action"),
        ),
        _GUEST,
    ),
    **dict.fromkeys(
        (
            *("maxphysaddr_bits", "maxphysaddr_mode"),
            *("redirected_usb_ports", "usb_model", "viommu_model"),
        ),
        _NOT_GIVEN,
    ),
    "vif_multiqueue_enabled": _QUEUES,
    "mem_encryption": _ENCRYPTED,
    "mem_encryption_model": _ENCRYPTED_HOW,
    "ephemeral_encryption": _DISK,
    "ephemeral_encryption_format": _DISK_HOW,
    "numa_mempolicy": _MEMPOLICY,
}
"""What a flavor says as `hw:NAME` and an image as `hw_NAME`."""

_FLAGS: Final = (
    *("boot_menu", "ephemeral_encryption", "locked_memory", "mem_encryption", "pmu"),
    *("vif_multiqueue_enabled", "virtio_packed_ring"),
)

NUMBERED: Final = ("numa_cpus", "numa_mem")
"""What is said for each guest NUMA cell: `hw:NAME.N` or `hw_NAME.N`."""

_LIMITS: Final = (
    *("cpu_period", "cpu_quota", "cpu_shares"),
    *(f"disk_{way}_{what}_sec" for way in ("read", "write", "total") for what in ("bytes", "iops")),
)
_NO_LIMITS: Final = (
    *("cpu_limit", "cpu_reservation", "cpu_shares_level", "cpu_shares_share"),
    *("memory_limit", "memory_reservation", "memory_shares_level", "memory_shares_share"),
    *(
        f"disk_{way}_{what}_sec{burst}"
        for way in ("read", "write", "total")
        for what in ("bytes", "iops")
        for burst in ("_max", "_max_length")
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
    "hw:cpu_realtime": _GUEST,
    "hw:hide_hypervisor_id": _GUEST,
    "hw:pmem": _PMEM,
    "hw:tpm_secret_security": _TPM_SECRET,
    "hw_rng:allowed": _GUEST,
    "hw_rng:rate_bytes": _GUEST,
    "hw_rng:rate_period": _GUEST,
    "hw_video:ram_max_mb": _GUEST,
    "os:secure_boot": _GUEST,
    "accel:device_profile": _ACCELERATOR,
    "group_policy": _PLACED,
    "pci_passthrough:alias": _PLACED,
    **{f"quota:{name}": _LIMIT for name in _LIMITS},
    **{f"quota:{name}": _NO_LIMIT for name in _NO_LIMITS},
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
    "os_secure_boot": _GUEST,
    **dict.fromkeys(
        (
            *("hw_disk_bus", "hw_disk_discard", "hw_firmware_stateless", "hw_firmware_type"),
            *("hw_machine_type", "hw_pointer_model", "hw_qemu_guest_agent", "hw_rng_model"),
            *("hw_scsi_model", "hw_time_hpet", "hw_video_model", "hw_video_ram"),
            "img_hide_hypervisor_id",
        ),
        _GUEST,
    ),
    "hw_cdrom_bus": _NO_DRIVE,
    "hw_vif_model": _NO_INTERFACE,
    **dict.fromkeys(
        ("hw_device_id", "hw_disk_type", "hw_emulation_architecture", "hw_iommu_model"), _NOT_GIVEN
    ),
    **dict.fromkeys(("hw_auto_disk_config", "hw_ipxe_boot", "os_require_quiesce"), _NOT_DONE),
    **dict.fromkeys(("hw_rescue_bus", "hw_rescue_device"), _RESCUE),
    "hw_floppy_bus": _FLOPPY,
    "hw_vm_mode": KnownKey(Effect.REFUSED, "guests are whole machines", ("hvm",)),
    "img_root_device_name": KnownKey(Effect.INFORMATION, "the bus decides what a disk is called"),
    **dict.fromkeys(
        (
            *("os_admin_user", "os_distro", "os_skip_agent_inject_files_at_boot"),
            *("os_skip_agent_inject_ssh", "os_version", "img_bittorrent"),
            *("img_cache_in_nova", "img_compression_level", "img_linked_clone"),
            *("img_owner_id", "img_use_agent", "img_version"),
        ),
        _DESCRIPTION,
    ),
    "os_type": _WINDOWS,
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

YES_OR_NO: Final = frozenset(
    {
        *(f"{where}{name}" for where in ("hw:", "hw_") for name in _FLAGS),
        *("hw:cpu_realtime", "hw:hide_hypervisor_id", "hw_rng:allowed"),
        *("hw_auto_disk_config", "hw_firmware_stateless", "hw_ipxe_boot", "hw_qemu_guest_agent"),
        *("hw_time_hpet", "img_hide_hypervisor_id", "os_require_quiesce"),
    }
)
"""Keys whose values have to be a spelling of yes or of no."""

ANYTHING_ELSE: Final = KnownKey(Effect.INFORMATION, "what its owner makes of it; asks for nothing")
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
