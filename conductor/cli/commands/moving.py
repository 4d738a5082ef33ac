"""Move instances, make them anew, shelve them. Each prints its operation's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from conductor.cli.options import DEFAULT_PROJECT, Deadline, Project, Timeout, Wait
from conductor.cli.rendering.output import Output
from conductor.cli.requests.send_and_wait import Manner, Which, ask_for
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S
from conductor.cli.store_queries import instance_named
from conductor.operations.steps.build_request import flavor_of, image_of
from conductor.processes.database_access import open_database
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.messages.requests import (
    ConfirmResize,
    EvacuateInstance,
    InstanceRequest,
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
    """Add the verbs of moves, of making anew and of shelving."""
    app.command("migrate")(migrate)
    app.command("resize")(resize)
    app.command("confirm")(confirm)
    app.command("revert")(revert)
    app.command("live-migrate")(live_migrate)
    app.command("rebuild")(rebuild)
    app.command("evacuate")(evacuate)
    app.command("shelve")(shelve)
    app.command("unshelve")(unshelve)


def migrate(
    instance: Which,
    host: Target = None,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Move an instance to another host, stopped on the way; then confirm or revert."""
    manner = Manner(wait, timeout, output)
    _ask(MigrateInstance, instance, project, manner, deadline_s=deadline, host=host)


def resize(
    instance: Which,
    flavor: Annotated[str, typer.Option(help="The new flavor's name.")],
    host: Target = None,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Give an instance another flavor; then confirm or revert."""
    manner = Manner(wait, timeout, output)
    _ask(ResizeInstance, instance, project, manner, deadline_s=deadline, host=host, flavor=flavor)


def confirm(
    instance: Which,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Keep a moved instance; its source gives up what it kept for a revert."""
    manner = Manner(wait, timeout, output)
    _ask(ConfirmResize, instance, project, manner, deadline_s=deadline)


def revert(
    instance: Which,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Put a moved instance back where it was, as it was."""
    manner = Manner(wait, timeout, output)
    _ask(RevertResize, instance, project, manner, deadline_s=deadline)


def live_migrate(
    instance: Which,
    host: Target = None,
    block_migration: Annotated[
        bool | None,
        typer.Option(
            "--block-migration/--no-block-migration",
            help="Refuse unless the disk is copied too, or is not.",
        ),
    ] = None,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Move a running instance to another host without stopping it."""
    manner = Manner(wait, timeout, output)
    asked = {"host": host, "block_migration": block_migration}
    _ask(LiveMigrateInstance, instance, project, manner, deadline_s=deadline, **asked)


def rebuild(
    instance: Which,
    image: Annotated[str, typer.Option(help="The image's id or name.")],
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Make an instance anew where it is, from an image."""
    manner = Manner(wait, timeout, output)
    _ask(RebuildInstance, instance, project, manner, deadline_s=deadline, image=image)


def evacuate(
    instance: Which,
    host: Target = None,
    force: Annotated[
        bool, typer.Option("--force", help="Skip every rule about hosts but room; needs --host.")
    ] = False,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Make an instance anew elsewhere because its host is dead."""
    manner = Manner(wait, timeout, output)
    _ask(EvacuateInstance, instance, project, manner, deadline_s=deadline, host=host, force=force)


def shelve(
    instance: Which,
    offload: Annotated[bool, typer.Option("--offload", help="Give up the host too.")] = False,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Stop an instance for long."""
    manner = Manner(wait, timeout, output)
    _ask(ShelveInstance, instance, project, manner, deadline_s=deadline, offload=offload)


def unshelve(
    instance: Which,
    host: Target = None,
    zone: Annotated[str | None, typer.Option(help="Only in this availability zone.")] = None,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Bring a shelved instance back, where it is or on a host chosen anew."""
    manner = Manner(wait, timeout, output)
    _ask(
        UnshelveInstance,
        instance,
        project,
        manner,
        deadline_s=deadline,
        host=host,
        availability_zone=zone,
    )


def _ask(
    kind: type[InstanceRequest], instance: str, project: str, manner: Manner, **asked: Any
) -> None:
    with open_database() as here:
        with here.store.read() as uow:
            found = instance_named(uow, instance)
            _refuse_unknown_names(uow, asked)
        body = {"context": {"project_id": project}, "instance_id": found.id, **asked}
        ask_for(here, kind.task, body, manner, instance)


def _refuse_unknown_names(uow: UnitOfWork, asked: Mapping[str, Any]) -> None:
    """Raise `Rejected` for a typing error before anything is sent; the conductor looks again."""
    if asked.get("flavor") is not None:
        flavor_of(asked["flavor"], uow, "flavor")
    if asked.get("image") is not None:
        image_of(asked["image"], uow, "image")
    host = asked.get("host")
    if host is not None and uow.hosts.get(host) is None:
        raise Rejected("host_unknown", f"host is {host}: no such host", key="host")
