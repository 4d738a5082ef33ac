"""Every key with which a flavor or an image says what a guest finds, and where its domain shows it.

A key of both is listed once, as `hw:NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree.ElementTree import Element

from hypothesis import strategies as st

YES: Final = ("yes", "True", "1", "on", " Y ", "t")
NO: Final = ("no", "False", "0", "off")
DEDICATED: Final = {"hw:cpu_policy": "dedicated", "hw:cpu_realtime_mask": "^0"}
VCPUS: Final = 4


@dataclass(frozen=True)
class Key:
    """Values that are taken, what has to be said beside them, and how the domain shows a value.

    `is_free` says that every other text is taken too, `may_be_open` what leaves it to the host.
    """

    values: st.SearchStrategy[str]
    shows: Callable[[Element, str], bool]
    beside: Mapping[str, str] = field(default_factory=dict)
    is_free: bool = False
    may_be_open: Callable[[str], bool] = lambda value: value.strip() == "0"


def choice(path: str, name: str | None = None, **beside: Any) -> Callable[..., Key]:
    """A key whose values are in an attribute, or in the text of an element, as they are."""

    def of(*values: str, absent: tuple[str, ...] = ()) -> Key:
        def shows(domain: Element, value: str) -> bool:
            return found(domain, path, name) == (None if value in absent else value)

        return Key(st.sampled_from([*values, *absent]), shows, beside)

    return of


def found(domain: Element, path: str, name: str | None = None) -> str | None:
    """An attribute of an element, or its text; None where it is not there."""
    element = domain.find(path)
    if element is None:
        return None
    return element.text if name is None else element.get(name)


def is_yes(value: str) -> bool:
    """Whether a value means yes."""
    return value.strip().lower() in ("1", "t", "true", "on", "y", "yes")


def flagged(path: str, beside: Mapping[str, str] | None = None) -> Key:
    """A key that makes an element appear."""

    def shows(domain: Element, value: str) -> bool:
        return (domain.find(path) is not None) == (is_yes(value))

    return Key(st.sampled_from([*YES, *NO]), shows, beside or {})


def number(path: str, name: str | None, least: int, most: int, **more: Any) -> Key:
    """A key whose value is a number that the domain shows; `times` where in another unit."""
    times = more.get("times", 1)

    def shows(domain: Element, value: str) -> bool:
        return found(domain, path, name) == str(int(value) * times)

    return Key(st.integers(least, most).map(str), shows, more.get("beside", {}))


def _switched(path: str, name: str) -> Key:
    def shows(domain: Element, value: str) -> bool:
        return found(domain, path, name) in (("on", "yes") if is_yes(value) else ("off", "no"))

    return Key(st.sampled_from([*YES, *NO]), shows)


def _topology(part: str, *, most: bool = False) -> Key:
    def shows(domain: Element, value: str) -> bool:
        shown = {name: int(found(domain, "cpu/topology", name) or 0)
                 for name in ("sockets", "cores", "threads")}  # fmt: skip
        whole = shown["sockets"] * shown["cores"] * shown["threads"] == VCPUS
        return whole and (shown[part] <= int(value) if most else shown[part] == int(value))

    def is_open(value: str) -> bool:
        # A number that does not divide the vCPUs is a preference that cannot be met.
        return int(value) == 0 or (not most and VCPUS % int(value) != 0)

    return Key(st.sampled_from(["1", "2", "4"]), shows, may_be_open=is_open)


def _serial(domain: Element, value: str) -> bool:
    return len(domain.findall("devices/serial")) == int(value)


def _secure(domain: Element, value: str) -> bool:
    feature = domain.find("os/firmware/feature[@name='secure-boot']")
    return (feature is not None and feature.get("enabled") == "yes") == (value == "required")


def _firmware(domain: Element, value: str) -> bool:
    return found(domain, "os", "firmware") == ("efi" if value == "uefi" else None)


def _pointer(domain: Element, value: str) -> bool:
    bus = {"usbtablet": "usb", "ps2mouse": "ps2"}.get(value, value)
    return found(domain, "devices/input", "bus") == bus


def _scsi(domain: Element, value: str) -> bool:
    return found(domain, "devices/controller[@type='scsi']", "model") == value


def _windows(domain: Element, value: str) -> bool:
    is_windows = value == "windows"
    hyperv = domain.find("features/hyperv") is not None
    return is_windows == hyperv == (found(domain, "clock", "offset") == "localtime")


def _hidden(domain: Element, value: str) -> bool:
    return (found(domain, "features/kvm/hidden", "state") == "on") == (is_yes(value))


def _allowed(domain: Element, value: str) -> bool:
    return (domain.find("devices/rng") is not None) == (is_yes(value))


def _limit(field_name: str) -> Key:
    return number(f"devices/disk/iotune/{field_name}", None, 0, 10**15)


RNG: Final = {"hw_rng_model": "virtio"}
VGA: Final = {"hw_video_model": "vga"}
SCSI: Final = {"hw_disk_bus": "scsi"}
PAGES: Final = {"hw:mem_page_size": "small"}
SOUNDS: Final = ("ac97", "es1370", "ich6", "ich9", "pcspk", "sb16", "usb")

KEYS: Final[dict[str, Key]] = {
    **{f"hw:cpu_{part}": _topology(part) for part in ("sockets", "cores", "threads")},
    **{f"hw:cpu_max_{part}": _topology(part, most=True)
       for part in ("sockets", "cores", "threads")},
    "hw:cpu_realtime": flagged("cputune/vcpusched", DEDICATED),
    "hw:pmu": _switched("features/pmu", "state"),
    "hw:hide_hypervisor_id": Key(st.sampled_from([*YES, *NO]), _hidden),
    "img_hide_hypervisor_id": Key(st.sampled_from([*YES, *NO]), _hidden),
    "hw:locked_memory": flagged("memoryBacking/locked", PAGES),
    "hw:boot_menu": flagged("os/bootmenu"),
    "os:secure_boot": Key(st.sampled_from(["required", "optional", "disabled"]), _secure),
    "hw:tpm_version": choice("devices/tpm/backend", "version")("1.2", "2.0"),
    "hw:tpm_model": choice("devices/tpm", "model", **{"hw:tpm_version": "2.0"})(
        "tpm-tis", "tpm-crb"),
    "hw:watchdog_action": choice("devices/watchdog", "action")(
        "none", "pause", "poweroff", "reset", absent=("disabled",)),
    "hw:serial_port_count": Key(st.sampled_from(["1", "2", "3", "4"]), _serial),
    "hw:virtio_packed_ring": flagged("devices/disk/driver[@packed='on']"),
    "hw:sound_model": choice("devices/sound", "model")(*SOUNDS),
    "hw:input_bus": Key(st.sampled_from(["usb", "ps2"]), _pointer),
    "hw_rng:allowed": Key(st.sampled_from([*YES, *NO]), _allowed, RNG),
    "hw_rng:rate_bytes": number("devices/rng/rate", "bytes", 1, 4096, beside=RNG),
    "hw_rng:rate_period": number("devices/rng/rate", "period", 1, 2**31 - 1,
                                 beside={**RNG, "hw_rng:rate_bytes": "64"}),
    "hw_video:ram_max_mb": Key(st.integers(16, 4096).map(str),
                               lambda domain, _: found(domain, "devices/video/model", "vram")
                               == str(16 * 1024), {**VGA, "hw_video_ram": "16"}),
    "quota:cpu_shares": number("cputune/shares", None, 2, 262_144),
    "quota:cpu_quota": number("cputune/quota", None, 1_000, 2**44),
    "quota:cpu_period": number("cputune/period", None, 1_000, 1_000_000),
    **{f"quota:disk_{way}_{what}_sec": _limit(f"{way}_{what}_sec")
       for way in ("read", "write", "total") for what in ("bytes", "iops")},
    "hw_disk_bus": choice("devices/disk/target", "bus")(
        "fdc", "ide", "sata", "scsi", "usb", "virtio"),
    "hw_disk_discard": choice("devices/disk/driver", "discard")("ignore", "unmap"),
    "hw_firmware_type": Key(st.sampled_from(["bios", "uefi"]), _firmware),
    "hw_firmware_stateless": flagged("os/loader[@stateless='yes']", {"hw_firmware_type": "uefi"}),
    "hw_machine_type": Key(st.from_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
                           lambda domain, value: found(domain, "os/type", "machine") == value,
                           is_free=True),
    "hw_pointer_model": Key(st.sampled_from(["usbtablet", "ps2mouse"]), _pointer),
    "hw_qemu_guest_agent": flagged("devices/channel/target[@name='org.qemu.guest_agent.0']"),
    "hw_rng_model": choice("devices/rng", "model")("virtio"),
    "hw_scsi_model": Key(st.sampled_from(["virtio-scsi", "lsilogic", "lsisas1078"]), _scsi, SCSI),
    "hw_time_hpet": _switched("clock/timer[@name='hpet']", "present"),
    "hw_video_model": choice("devices/video/model", "type")(
        "bochs", "cirrus", "none", "qxl", "vga", "virtio"),
    "hw_video_ram": number("devices/video/model", "vram", 1, 64, times=1024,
                           beside={**VGA, "hw_video:ram_max_mb": "64"}),
    "os_type": Key(st.sampled_from(["windows", "linux", "other"]), _windows, is_free=True),
}  # fmt: skip


def sides(key: str, value: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Each way to say it: as an extra spec, as a property, or as either; with what is beside it."""
    said = {**KEYS[key].beside}
    ways = []
    if ":" in key:
        ways.append({**said, key: value})
    if is_of_both(key):
        ways.append({**said, key.replace(":", "_"): value})
    elif ":" not in key:
        ways.append({**said, key: value})
    return [
        ({name: text for name, text in way.items() if ":" in name},
         {name: text for name, text in way.items() if ":" not in name})
        for way in ways
    ]  # fmt: skip


def is_of_both(key: str) -> bool:
    """Whether flavors and images both have it."""
    of_flavors = ("hw:cpu_realtime", "hw:hide_hypervisor_id")
    return key.startswith(("hw:", "os:")) and key not in of_flavors
