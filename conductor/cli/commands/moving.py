"""Move instances, rebuild them, shelve them. Each command prints its operation's id."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor.cli.requests.instance_requests import instance_command
from models.json_types import Json
from models.messages.requests import (
    ConfirmResize,
    EvacuateInstance,
    LiveMigrateInstance,
    MigrateInstance,
    RebuildInstance,
    ResizeInstance,
    RevertResize,
    ShelveInstance,
    UnshelveInstance,
)

Target = Annotated[str | None, typer.Option("--host", help="To this host and no other.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands that move, rebuild and shelve an instance."""
    app.command("migrate")(instance_command(MigrateInstance, migrate))
    app.command("resize")(instance_command(ResizeInstance, resize))
    app.command("confirm")(instance_command(ConfirmResize, confirm))
    app.command("revert")(instance_command(RevertResize, revert))
    app.command("live-migrate")(instance_command(LiveMigrateInstance, live_migrate))
    app.command("rebuild")(instance_command(RebuildInstance, rebuild))
    app.command("evacuate")(instance_command(EvacuateInstance, evacuate))
    app.command("shelve")(instance_command(ShelveInstance, shelve))
    app.command("unshelve")(instance_command(UnshelveInstance, unshelve))


def migrate(host: Target = None) -> Json:
    """Move an instance to another host, stopped on the way; then confirm or revert."""
    return {"host": host}


def resize(
    flavor: Annotated[str, typer.Option(help="The new flavor's name.")], host: Target = None
) -> Json:
    """Give an instance another flavor; then confirm or revert."""
    return {"host": host, "flavor": flavor}


def confirm() -> Json:
    """Keep a moved instance; its source releases what it kept for a revert."""
    return {}


def revert() -> Json:
    """Move an instance back to where it was, as it was."""
    return {}


def live_migrate(
    host: Target = None,
    block_migration: Annotated[
        bool | None,
        typer.Option(
            "--block-migration/--no-block-migration",
            help="Refuse unless the disk is copied too, or is not.",
        ),
    ] = None,
    bandwidth: Annotated[int | None, typer.Option(min=1, help="At most MiB a second.")] = None,
    downtime: Annotated[
        int | None, typer.Option(min=1, help="Milliseconds for which it may stand still.")
    ] = None,
    post_copy: Annotated[
        bool, typer.Option("--post-copy", help="Let it run there before all memory has come.")
    ] = False,
    copy_timeout: Annotated[
        float | None, typer.Option(help="Seconds after which the copy is given up.")
    ] = None,
    pause_on_timeout: Annotated[
        bool, typer.Option("--pause-on-timeout", help="Pause it then until the copy is complete.")
    ] = False,
) -> Json:
    """Move a running instance to another host without stopping it."""
    policy = {
        "bandwidth_mib_s": bandwidth,
        "downtime_ms": downtime,
        "post_copy": post_copy,
        "timeout_s": copy_timeout,
        "on_timeout": "pause" if pause_on_timeout else "abort",
    }
    given = {name: value for name, value in policy.items() if value is not None}
    return {"host": host, "block_migration": block_migration, "policy": given}


def rebuild(image: Annotated[str, typer.Option(help="The image's id or name.")]) -> Json:
    """Rebuild an instance on its host from an image."""
    return {"image": image}


def evacuate(
    host: Target = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Skip every filter but free capacity; needs --host."),
    ] = False,
) -> Json:
    """Rebuild an instance on another host because its own is dead."""
    return {"host": host, "force": force}


def shelve(
    offload: Annotated[bool, typer.Option("--offload", help="Release its host too.")] = False,
) -> Json:
    """Stop an instance and keep it for later."""
    return {"offload": offload}


def unshelve(
    host: Target = None,
    zone: Annotated[str | None, typer.Option(help="Only in this availability zone.")] = None,
) -> Json:
    """Bring a shelved instance back, on its host or on one that is scheduled anew."""
    return {"host": host, "availability_zone": zone}
