"""Hosts: list, show and draw them, enable, disable, force down, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.commands.host_changes import (
    disable,
    enable,
    force_down,
    remove,
    trust_database,
)
from conductor.cli.commands.host_import import import_hosts
from conductor.cli.commands.host_map import draw
from conductor.cli.options import Limit
from conductor.cli.rendering.json_views import host_view
from conductor.cli.rendering.output import Output, newest, show_all, show_one
from conductor.cli.rendering.render_layout import size_text
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.store_queries import host_statuses_of, hosts_named
from conductor.processes.database_access import open_database
from models.hardware import format_cpu_list, mask_of
from models.json_types import JsonDict
from models.lifecycle import HostState
from models.units import MIB_PER_GIB

Name = Annotated[str, typer.Argument(metavar="HOST", help="The host's name.")]


def add_to(app: typer.Typer) -> None:
    """Add `hosts` with its verbs."""
    hosts = typer.Typer(help="List and draw hosts, open and close them for instances, remove them.")
    hosts.command("list")(list_all)
    hosts.command("show")(show)
    hosts.command("map")(draw)
    hosts.command("enable")(enable)
    hosts.command("disable")(disable)
    hosts.command("force-down")(force_down)
    hosts.command("remove")(remove)
    hosts.command("trust-database")(trust_database)
    hosts.command("import")(import_hosts)
    app.add_typer(hosts, name="hosts", no_args_is_help=True)


def list_all(
    state: Annotated[str | None, typer.Option(help="up, down, disabled or degraded.")] = None,
    limit: Limit = 10_000,
    output: Output = None,
) -> None:
    """List hosts with their state and use."""
    chosen = member(HostState, state, "state")
    with open_database() as here, here.store.read() as uow:
        statuses = host_statuses_of(uow, uow.hosts.where(), here.settings.down_after_s)
    views = [host_view(status) for status in statuses]
    rows = newest([row for row in views if chosen is None or row["state"] == chosen], limit)
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(host: Name, output: Output = None) -> None:
    """Show one host: its state, NUMA cells, use by resource class, instances."""
    with open_database() as here, here.store.read() as uow:
        status = host_statuses_of(uow, hosts_named(uow, [host]), here.settings.down_after_s)[0]
    row = host_view(status)
    show_one(row, output, lambda: _picture(row))


def _picture(row: JsonDict) -> RenderableType:
    usage = [{"class": name, **amounts} for name, amounts in row["usage"].items()]
    return Group(
        fields_of(row, _SHOWN),
        "",
        Text("use", style="bold"),
        table_of(usage, _USAGE_COLUMNS),
        "",
        Text("NUMA cells", style="bold"),
        table_of(row["cells"], _CELL_COLUMNS),
    )


def _cpus(name: str) -> Callable[[JsonDict], str]:
    return lambda cell: format_cpu_list(mask_of(cell[name]))


def _pools(cell: JsonDict) -> str:
    return "  ".join(
        f"{size_text(size)} {used + reserved}/{total}"
        for size, total, used, reserved in cell["mempages"]
    )


def _of(name: str, unit: int = 1) -> Callable[[JsonDict], str | None]:
    def shown(row: JsonDict) -> str | None:
        use = row["usage"].get(name)
        if not use:
            return None
        most = use["used"] + use["free"] - use["over_committed"]
        return f"{use['used'] // unit}/{most // unit}"

    return shown


_SHOWN: Final = (
    "name",
    "state",
    "reason",
    "hypervisor",
    "traits",
    "seen_at",
    "instances",
    "unexpected_guests",
    "refused_worker",
    "notes",
)
_COLUMNS: Final = (
    ("name", key("name")),
    ("state", key("state")),
    ("cells", lambda row: len(row["cells"])),
    ("guests", lambda row: len(row["instances"])),
    ("PCPU", _of("PCPU")),
    ("VCPU", _of("VCPU")),
    ("GiB", _of("MEMORY_MB", MIB_PER_GIB)),
    ("disk GiB", _of("DISK_GB")),
    ("reason", key("reason")),
)
_USAGE_COLUMNS: Final = tuple(
    (name, key(name))
    for name in ("class", "total", "reserved", "ratio", "used", "free", "over_committed")
)
_CELL_COLUMNS: Final = (
    ("id", key("id")),
    ("socket", key("socket")),
    ("shared CPUs", _cpus("cpuset")),
    ("dedicated CPUs", _cpus("pcpuset")),
    ("pinned", _cpus("pinned_cpus")),
    ("shared vCPUs", key("cpu_usage")),
    ("MiB used", lambda cell: f"{cell['memory_usage']}/{cell['memory']}"),
    ("pages used", _pools),
)
