"""The three processes of a system with services; each is put together in a module of its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from conductor.cli.arguments import pairs, reserved_pages
from conductor.processes.compute.libvirt_options import (
    DEFAULT_CACHE_GIB,
    DEFAULT_DISK_PORT,
    LOCAL_LIBVIRT,
    LibvirtOptions,
)
from conductor.processes.logs import set_up_logs
from conductor.settings import Settings, read_settings
from models.errors import Rejected
from models.hardware.host_config import host_config
from models.ids import HOST_RULE, is_host_name


class Kind(StrEnum):
    """The hypervisors that there are drivers for."""

    SIMULATED = "simulated"
    LIBVIRT = "libvirt"


def add_to(app: typer.Typer) -> None:
    """Add `serve` with its processes."""
    serve = typer.Typer(help="Run one process of the system in the foreground.")
    serve.command("conductor")(conductor)
    serve.command("scheduler")(scheduler)
    serve.command("compute")(compute)
    app.add_typer(serve, name="serve", no_args_is_help=True)


def conductor() -> None:
    """Accept requests and carry operations out; any number may run."""
    # Imported here, so that a compute worker's process never holds the database's code.
    process = importlib.import_module("conductor.processes.control.conductor_process")
    raise typer.Exit(process.run_conductor(_settings()))


def scheduler() -> None:
    """Select hosts and claim their resources; any number may run."""
    process = importlib.import_module("conductor.processes.control.scheduler_process")
    raise typer.Exit(process.run_scheduler(_settings()))


def compute(
    host: Annotated[str, typer.Option(help="The name of the host that this worker serves.")],
    hypervisor: Annotated[Kind, typer.Option(help="What runs the guests.")] = Kind.SIMULATED,
    topology: Annotated[
        Path | None,
        typer.Option(help="Hardware of a simulated host; without, a default."),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Where journal and simulated guests are kept.")
    ] = None,
    trait: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A trait that the host has, in addition to those in HOST.json."
        ),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--habit",
            metavar="NAME=VALUE",
            help="Faults of the simulated hypervisor: latency_s=SECONDS, latency_max_s=SECONDS, "
            "refused=CHANCE, lost=CHANCE, hang=CHANCE, seed=NUMBER; one verb only: spawn.hang=1.",
        ),
    ] = None,
    libvirt: Annotated[
        str, typer.Option(metavar="URI", help="The libvirt of this machine.")
    ] = LOCAL_LIBVIRT,
    migration_uri: Annotated[
        str | None,
        typer.Option(metavar="URI", help="This libvirt as other hosts open it; by TLS without."),
    ] = None,
    migration_address: Annotated[
        str | None, typer.Option(help="Where other hosts send the memory of guests.")
    ] = None,
    shared_cpus: Annotated[
        str | None, typer.Option(metavar="CPUS", help="CPUs for shared guests, e.g. 0-3,^1.")
    ] = None,
    dedicated_cpus: Annotated[
        str | None, typer.Option(metavar="CPUS", help="CPUs for dedicated guests.")
    ] = None,
    reserve_pages: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CELL:SIZE:COUNT",
            help="Huge pages that no guest gets, e.g. 0:2MB:64; several times.",
        ),
    ] = None,
    image_store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where snapshots go: file:///FOLDER, http(s)://SERVER."),
    ] = None,
    image_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Images of file: URLs may be read below here; several times."),
    ] = None,
    image_cache_gib: Annotated[
        int, typer.Option(min=1, help="Disk for the cache of images, not offered to guests.")
    ] = DEFAULT_CACHE_GIB,
    disk_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Other hosts fetch disks here; 0 is any.")
    ] = DEFAULT_DISK_PORT,
) -> None:
    """Carry out instructions on one host: one process a host, without a database."""
    worker = importlib.import_module("conductor.processes.compute.compute_process")
    settings = _settings()
    folder = (state_dir or settings.state_dir / "compute") / _folder(host)
    injected, traits = pairs(faults, "habit"), tuple(trait or ())
    real = None
    if hypervisor is Kind.LIBVIRT:
        _refuse_useless(
            {"--topology": topology, "--habit": faults}, "simulated: a real host is what it is"
        )
        real = LibvirtOptions(
            uri=libvirt,
            migration_uri=migration_uri,
            migration_address=migration_address,
            set_aside=host_config(
                shared_cpus, dedicated_cpus, reserved=reserved_pages(reserve_pages)
            ),
            traits=traits,
            image_store=image_store,
            image_folders=tuple(image_folder or ()),
            cache_gib=image_cache_gib,
            disk_port=disk_port,
        )
    else:
        _refuse_useless(
            {
                "--migration-uri": migration_uri,
                "--migration-address": migration_address,
                "--shared-cpus": shared_cpus,
                "--dedicated-cpus": dedicated_cpus,
                "--reserve-pages": reserve_pages,
                "--image-store": image_store,
                "--image-folder": image_folder,
            },
            "libvirt: a simulated host is as --topology says",
        )
    options = worker.ComputeOptions(host, topology, folder, injected, traits, real)
    raise typer.Exit(worker.run_compute(settings, options))


def _refuse_useless(given: Mapping[str, object], whose: str) -> None:
    """Raise `Rejected` for an option that another hypervisor has, instead of ignoring it."""
    for option, value in given.items():
        if value:
            message = f"{option} is for --hypervisor {whose}"
            raise Rejected("option_useless", message, key=option)


def _settings() -> Settings:
    settings = read_settings()
    if settings.embedded:
        message = "CONDUCTOR_BROKER_URL is not set: `serve` needs a broker, `up` does without"
        raise Rejected("setting_missing", message, key="CONDUCTOR_BROKER_URL")
    set_up_logs(settings.log_level)
    return settings


def _folder(host: str) -> str:
    """Return a host's name as a folder; raise `Rejected` for what can name no host."""
    if not is_host_name(host):
        message = f"--host is {host[:80]!r}: should be {HOST_RULE}"
        raise Rejected("host_invalid", message, key="host")
    return host
