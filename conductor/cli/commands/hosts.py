"""Look at hosts, see their NUMA cells, take them in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.commands.host_import import import_hosts
from conductor.cli.options import Limit
from conductor.cli.rendering.json_views import host_view
from conductor.cli.rendering.output import Format, Output, console, newest, show_all, show_one
from conductor.cli.rendering.render_host import host_picture, key_line
from conductor.cli.rendering.render_layout import size_text
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.requests.request_sending import carrier_of
from conductor.cli.store_queries import guests_of, hosts_named, operation_statuses_of
from conductor.exit_codes import say
from conductor.hosts import host_administration as rules
from conductor.processes.database_access import open_database
from conductor.store import Host, UnitOfWork
from conductor.transactions import Transactions
from models.hardware import format_cpu_list, mask_of
from models.json_types import JsonDict
from models.lifecycle import HostState
from models.units import MIB_PER_GIB

Name = Annotated[str, typer.Argument(metavar="HOST", help="The host's name.")]
Names = Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")]
Reason = Annotated[str | None, typer.Option(help="Why, for `hosts show`.")]


def add_to(app: typer.Typer) -> None:
    """Add `hosts` with its verbs."""
    hosts = typer.Typer(help="Look at hosts, see their NUMA cells, take them in and out.")
    hosts.command("list")(list_all)
    hosts.command("show")(show)
    hosts.command("map")(map_)
    hosts.command("enable")(enable)
    hosts.command("disable")(disable)
    hosts.command("force-down")(force_down)
    hosts.command("remove")(remove)
    hosts.command("import")(import_hosts)
    app.add_typer(hosts, name="hosts", no_args_is_help=True)


def list_all(
    state: Annotated[str | None, typer.Option(help="up, down, disabled or degraded.")] = None,
    limit: Limit = 10_000,
    output: Output = None,
) -> None:
    """List hosts with their state and use."""
    asked = member(HostState, state, "state")
    with open_database() as here, here.store.read() as uow:
        sights = operation_statuses_of(uow, uow.hosts.where(), here.settings.down_after_s)
    views = [host_view(status) for status in sights]
    rows = newest([row for row in views if asked is None or row["state"] == asked], limit)
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(host: Name, output: Output = None) -> None:
    """Show one host: its state, NUMA cells, use by resource class, instances."""
    with open_database() as here, here.store.read() as uow:
        status = operation_statuses_of(uow, hosts_named(uow, [host]), here.settings.down_after_s)[0]
    row = host_view(status)
    show_one(row, output, lambda: _picture(row))


def map_(
    host: Annotated[
        list[str] | None, typer.Argument(metavar="HOST...", help="These only, else all of them.")
    ] = None,
    output: Output = None,
) -> None:
    """Draw hosts: NUMA cells, cores and threads coloured by instance, memory and huge pages."""
    with open_database() as here, here.store.read() as uow:
        found = hosts_named(uow, host) if host else sorted(uow.hosts.where(), key=_name_of)
        sights = operation_statuses_of(uow, found, here.settings.down_after_s)
        guests = {item.name: guests_of(uow, item.name) for item in found}
    rows = [host_view(status) for status in sights]
    pictures = [
        host_picture(status.host, guests[status.host.name], row["state"])
        for status, row in zip(sights, rows, strict=True)
    ]
    if (output or Format.TABLE) is Format.TABLE:
        console().print(Group(*pictures, key_line()))
    else:
        show_all(rows, output, Group)


def _name_of(host: Host) -> str:
    return host.name


def enable(host: Names) -> None:
    """Open hosts for new instances; a degraded one counts as looked at by a person."""
    _change(host, lambda uow, name: rules.set_enabled(uow, name, enabled=True, reason=None))
    say(f"enabled: {' '.join(host)}")


def disable(host: Names, reason: Reason = None) -> None:
    """Close hosts for new instances; those there stay."""
    _change(host, lambda uow, name: rules.set_enabled(uow, name, enabled=False, reason=reason))
    say(f"disabled: {' '.join(host)}")


def force_down(host: Names, reason: Reason = None) -> None:
    """Declare hosts dead, so that what waits for them goes on without them."""
    _change(host, lambda uow, name: rules.force_down(uow, name, reason))
    say(f"forced down: {' '.join(host)}")


def remove(host: Names) -> None:
    """Forget hosts that hold nothing."""
    _change(host, rules.remove)
    say(f"removed: {' '.join(host)}")


def _change(names: Sequence[str], change: Callable[[UnitOfWork, str], object]) -> None:
    """Change all hosts in one transaction, or none."""

    def work(uow: UnitOfWork) -> None:
        for name in names:
            change(uow, name)

    with open_database() as here:
        Transactions(here.store, carrier_of(here)).run(work)


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
