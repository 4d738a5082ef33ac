"""Files that describe hosts, in any form we read, to hosts."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models.errors import Rejected
from models.hardware import HostCell, HostTopology
from models.hardware.host_rules import remarks_on, sound
from models.ids import HOST_RULE, HostName, is_host_name
from models.messages.hardware.hardware_json import host_from_json, host_to_json
from models.units import KIB_PER_MIB
from workers.hypervisor.ports import DEFAULT_DISK_GB, Hardware
from workers.inventory.hardware_findings import (
    CellReport,
    CpuSets,
    adding_up,
    host_cell,
    over_reported_kib,
)
from workers.inventory.libvirt_capabilities import cells_of_capabilities
from workers.inventory.sysfs import cells_of_tree
from workers.inventory.sysfs_tree import is_tarball, read_directory, read_tarball
from workers.inventory.traits import traits_of

LARGEST_TEXT = 64 * 1024 * 1024
_SUFFIXES = (".tar.bz2", ".tar.gz", ".tar.xz", ".tgz", ".tbz2", ".tar", ".xml", ".json")


@dataclass(frozen=True, slots=True)
class ImportedHost:
    """A host as a file describes it; `notes` tell a person what was left out or corrected."""

    name: HostName
    topology: HostTopology
    disk_gb: int = DEFAULT_DISK_GB
    traits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hardware(self) -> Hardware:
        """Return what the host is made of, without its name."""
        return Hardware(self.topology, self.disk_gb, self.traits)


def read_host_files(paths: Iterable[Path], sets: CpuSets | None = None) -> list[ImportedHost]:
    """Return the hosts that files describe, in order; all of them or none.

    A file is libvirt capabilities XML, a sysfs tree (directory or tarball), or our own JSON: a
    `host` of the contract with `name`, `disk_gb` and `traits` beside `cells`, or a list of such.
    A host without a name is named after its file. `sets` divides the CPUs; without it all are
    shared, and those of JSON as the file says. Raises `Rejected` naming file and rule.
    """
    hosts: list[ImportedHost] = []
    seen: dict[str, Path] = {}
    for path in paths:
        try:
            found = list(_hosts_in(path, sets))
        except Rejected as error:
            raise _in_file(path, error) from None
        except OSError as error:
            message = f"{path}: {error.strerror or 'it cannot be read as what it seems to be'}"
            raise Rejected("file_unreadable", message, file=str(path)) from None
        for host in found:
            if host.name in seen:
                message = f"{path}: host {host.name} is already in {seen[host.name]}"
                raise Rejected("host_twice", message, key="name", file=str(path))
            seen[host.name] = path
        hosts += found
    return hosts


def _hosts_in(path: Path, sets: CpuSets | None) -> Iterator[ImportedHost]:
    if path.is_dir():
        yield _host(path, cells_of_tree(read_directory(path)), sets)
    elif is_tarball(path):
        yield _host(path, cells_of_tree(read_tarball(path)), sets)
    else:
        text = _text_of(path)
        if text.startswith("<"):
            yield _host(path, cells_of_capabilities(text), sets)
        elif text.startswith(("{", "[")):
            yield from _own(path, text, sets)
        else:
            message = "it is no sysfs tree or tarball, no libvirt capabilities and no JSON"
            raise Rejected("file_unknown", message)


def _host(
    path: Path, described: tuple[tuple[CellReport, ...], tuple[str, ...]], sets: CpuSets | None
) -> ImportedHost:
    reports, notes = described
    sets = sets or CpuSets()
    online = 0
    for report in reports:
        online |= report.cpus
    sets.refuse_unknown(online)
    topology = HostTopology(tuple(host_cell(report, sets) for report in reports))
    return _checked(ImportedHost(_named_after(path), topology, notes=notes))


def _own(path: Path, text: str, sets: CpuSets | None) -> Iterator[ImportedHost]:
    try:
        data = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise Rejected("not_json", f"it is no JSON: {error}") from None
    for position, host in enumerate(data if isinstance(data, list) else [data]):
        if not isinstance(host, dict):
            raise Rejected("host_invalid", f"host {position} is no JSON object")
        name = host.get("name") or (None if isinstance(data, list) else _named_after(path))
        if name is None:
            raise Rejected("field_missing", f"host {position} of the list has no name", key="name")
        yield _checked(_own_host(name, host, sets))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise `Rejected` for a key that is there twice: one would be lost."""
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            message = f"{key[:60]} is there twice in one object"
            raise Rejected("key_twice", message, key=key[:60])
        seen[key] = value
    return seen


def _own_host(name: Any, data: Mapping[str, Any], sets: CpuSets | None) -> ImportedHost:
    described = {"name", "traits"}
    topology = host_from_json({key: value for key, value in data.items() if key not in described})
    if sets is not None:
        topology = _divided(topology, sets)
    disk_gb = data.get("disk_gb")
    return ImportedHost(
        name,
        HostTopology(tuple(map(_added_up, topology.cells)), topology.pci_pools),
        DEFAULT_DISK_GB if disk_gb is None else disk_gb,
        traits_of(data.get("traits", [])),
        tuple(note for cell in topology.cells for note in _complaints(cell)),
    )


def _divided(topology: HostTopology, sets: CpuSets) -> HostTopology:
    cells = []
    online = 0
    for cell in topology.cells:
        cpus = cell.shared_cpus | cell.dedicated_cpus
        online |= cpus
        shared, dedicated = sets.split(cpus)
        cells.append(replace(cell, shared_cpus=shared, dedicated_cpus=dedicated))
    sets.refuse_unknown(online)
    return HostTopology(tuple(cells), topology.pci_pools)


def _added_up(cell: HostCell) -> HostCell:
    if not cell.page_pools:
        return cell
    memory_kib = cell.memory_mib * KIB_PER_MIB
    pools = adding_up(cell.id, memory_kib, cell.page_pools)
    return replace(cell, page_pools=pools)


def _complaints(cell: HostCell) -> Iterator[str]:
    excess_kib = over_reported_kib(cell.memory_mib * KIB_PER_MIB, cell.page_pools)
    if excess_kib >= KIB_PER_MIB:
        yield f"NUMA cell {cell.id} over-reports its small pages by {excess_kib} KiB: cut"


def _checked(host: ImportedHost) -> ImportedHost:
    name: Any = host.name
    if not isinstance(name, str) or not is_host_name(name):
        message = f"name is {name!r:.40}: should be {HOST_RULE}"
        raise Rejected("field_invalid", message, key="name")
    cells = host.topology.cells
    if not any(cell.shared_cpus | cell.dedicated_cpus for cell in cells):
        raise Rejected("hardware_incomplete", "no CPU of the host is for guests", key="cpuset")
    if not any(cell.memory_mib for cell in cells):
        raise Rejected("hardware_incomplete", "the host has no memory", key="memory")
    # By way of JSON, where the rules over several cells are checked for everybody alike.
    topology = sound(host_from_json(host_to_json(host.topology)))
    return replace(host, topology=topology, notes=(*host.notes, *remarks_on(topology)))


def _named_after(path: Path) -> HostName:
    resolved = path.resolve()
    if resolved.is_dir() and resolved.name in {"", "sys"}:
        return HostName(platform.node())
    suffix = next((name for name in _SUFFIXES if resolved.name.endswith(name)), "")
    return HostName(resolved.name.removesuffix(suffix))


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise Rejected("file_too_large", f"it is larger than {LARGEST_TEXT // 2**20} MiB")
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise Rejected("file_unknown", "it is neither a tarball nor text") from None


def _in_file(path: Path, error: Rejected) -> Rejected:
    data = {**error.data, "file": str(path)}
    return Rejected(error.code, f"{path}: {error.message}", error.key, **data)
