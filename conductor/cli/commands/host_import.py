"""Register hosts from files that describe their hardware."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor.cli.arguments import cpu_sets
from conductor.cli.described_hosts import add_hosts
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.request_sending import run_transaction
from conductor.exit_codes import say
from conductor.processes.database_access import open_database
from models.json_types import JsonDict
from models.messages.hardware.hardware_json import host_to_json
from workers.inventory import ImportedHost, read_host_files


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
    """Register the hosts that files describe; they are down until their workers register."""
    found = read_host_files(file, cpu_sets(shared, dedicated))
    for host in found:
        for note in host.notes:
            say(f"{host.name}: {note}")
    if not dry_run:
        with open_database() as here:
            run_transaction(here, partial(add_hosts, here.settings, found))
    rows = [_imported(host) for host in found]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


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
