"""Register hosts from files that describe their hardware."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.request_sending import carrier_of
from conductor.exit_codes import say
from conductor.hosts.admission import namesake
from conductor.placement.providers import provider_id_of
from conductor.placement.resources import Ratios, inventory_of
from conductor.processes.database_access import open_database
from conductor.settings import Settings
from conductor.store import Host, UnitOfWork
from conductor.transactions import Transactions
from models.errors import Rejected
from models.hardware import parse_cpu_list
from models.hardware.accounting import without_use
from models.hardware.host_rules import refuse_excess
from models.json_types import JsonDict
from models.messages.hardware_json import host_to_json
from models.messages.internal import Reservation
from workers.inventory import CpuSets, ImportedHost, read_host_files


def import_hosts(
    file: Annotated[
        list[Path],
        typer.Argument(help="libvirt capabilities XML, a sysfs tree or its tarball, our JSON."),
    ],
    shared: Annotated[
        str | None, typer.Option(metavar="CPUS", help="CPUs for shared guests, e.g. 0-3,^1.")
    ] = None,
    dedicated: Annotated[
        str | None, typer.Option(metavar="CPUS", help="CPUs for dedicated guests.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print, register nothing.")] = False,
    output: Output = None,
) -> None:
    """Register the hosts that files describe; they are down until their workers say hello."""
    found = read_host_files(file, _sets(shared, dedicated))
    for host in found:
        for note in host.notes:
            say(f"{host.name}: {note}")
    if not dry_run:
        with open_database() as here:
            Transactions(here.store, carrier_of(here)).run(partial(_register, here.settings, found))
    rows = [_imported(host) for host in found]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def _sets(shared: str | None, dedicated: str | None) -> CpuSets | None:
    if shared is None and dedicated is None:
        return None
    return CpuSets(
        None if shared is None else parse_cpu_list(shared),
        None if dedicated is None else parse_cpu_list(dedicated),
    )


def _register(settings: Settings, found: Sequence[ImportedHost], uow: UnitOfWork) -> None:
    reserved = Reservation(
        memory_mib=settings.reserved_host_memory_mib,
        disk_gb=settings.reserved_host_disk_gb,
        vcpus=settings.reserved_host_vcpus,
    )
    ratios = Ratios(
        settings.cpu_allocation_ratio,
        settings.ram_allocation_ratio,
        settings.disk_allocation_ratio,
    )
    for host in found:
        if uow.hosts.get(host.name) is not None:
            message = f"host is {host.name}: it is known already"
            raise Rejected("host_exists", message, key="host")
        other = namesake(host.name, uow.hosts.versions())
        if other is not None:
            message = f"host is {host.name}: {other} is known, and both names have the same queue"
            raise Rejected("host_name_shared", message, key="host")
        _refuse_excess(host, reserved)
        inventory = inventory_of(host.topology, host.disk_gb, reserved, ratios)
        uow.hosts.add(
            Host(
                name=host.name,
                topology=without_use(host.topology),
                inventory=inventory,
                traits=host.traits,
                own_traits=host.traits,
                created_at=uow.now,
                updated_at=uow.now,
                provider_id=provider_id_of(host.name),
            )
        )


def _refuse_excess(host: ImportedHost, reserved: Reservation) -> None:
    cells = host.topology.cells
    cpus = sum((cell.shared_cpus | cell.dedicated_cpus).bit_count() for cell in cells)
    refuse_excess("vcpus", reserved.vcpus, cpus, "CPUs")
    refuse_excess("memory", reserved.memory_mib, sum(c.memory_mib for c in cells), "MiB")
    refuse_excess("disk", reserved.disk_gb, host.disk_gb, "GiB")


def _imported(host: ImportedHost) -> JsonDict:
    return {
        "name": host.name,
        "disk_gb": host.disk_gb,
        "traits": list(host.traits),
        "notes": list(host.notes),
        **host_to_json(host.topology),
    }


_COLUMNS: Final = (
    ("name", key("name")),
    ("NUMA cells", lambda row: len(row["cells"])),
    ("CPUs", lambda row: sum(len({*c["cpuset"], *c["pcpuset"]}) for c in row["cells"])),
    ("MiB", lambda row: sum(cell["memory"] for cell in row["cells"])),
)
