"""Build instances and change their power. Each command prints its operation's id."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor.cli.arguments import pairs
from conductor.cli.requests.instance_requests import instance_command
from conductor.cli.requests.request_options import RequestOptions, with_request_options
from conductor.cli.requests.send_and_wait import request_body, submit
from conductor.operations.steps.build_request import spec_of
from conductor.processes.database_access import DatabaseAccess, open_database
from models.json_types import Json, JsonDict
from models.messages.requests import (
    BuildInstances,
    PauseInstance,
    RebootInstance,
    ResumeInstance,
    StartInstance,
    StopInstance,
    SuspendInstance,
    UnpauseInstance,
    parse_request,
)


def add_to(app: typer.Typer) -> None:
    """Add `build` and what changes the power of an instance."""
    app.command("build")(with_request_options(build))
    app.command("start")(instance_command(StartInstance, start))
    app.command("stop")(instance_command(StopInstance, stop))
    app.command("pause")(instance_command(PauseInstance, pause))
    app.command("unpause")(instance_command(UnpauseInstance, unpause))
    app.command("suspend")(instance_command(SuspendInstance, suspend))
    app.command("resume")(instance_command(ResumeInstance, resume))
    app.command("reboot")(instance_command(RebootInstance, reboot))


def build(
    flavor: Annotated[str, typer.Option(help="The flavor's name.")],
    image: Annotated[str, typer.Option(help="The image's id or name.")],
    name: Annotated[str, typer.Option(help="Numbered when there are several.")] = "instance",
    count: Annotated[int, typer.Option(help="How many, from 1 to 1000: all or none.")] = 1,
    zone: Annotated[str | None, typer.Option(help="Only in this availability zone.")] = None,
    host: Annotated[str | None, typer.Option(help="On this host and nowhere else.")] = None,
    group: Annotated[str | None, typer.Option(help="A member of this server group.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    *,
    options: RequestOptions,
) -> None:
    """Build instances: choose hosts, claim CPUs, pages and disk, spawn."""
    instance = {
        "name": name,
        "flavor": flavor,
        "image": image,
        "availability_zone": zone,
        "host": host,
        "group": group,
        "metadata": pairs(metadata, "metadata"),
    }
    fields: JsonDict = {
        "instance": {field: value for field, value in instance.items() if value is not None},
        "count": count,
    }
    with open_database() as here:
        _refuse_what_cannot_be(here, request_body(fields, options))
        submit(here, BuildInstances.task, fields, options)


def start() -> Json:
    """Power a stopped instance on."""
    return {}


def stop() -> Json:
    """Power an active instance off; it keeps its place."""
    return {}


def pause() -> Json:
    """Let an active instance stand still, in memory."""
    return {}


def unpause() -> Json:
    """Let a paused instance go on."""
    return {}


def suspend() -> Json:
    """Save the memory of an active instance and stop it; it keeps its place."""
    return {}


def resume() -> Json:
    """Let a suspended instance go on from its saved memory."""
    return {}


def reboot(
    hard: Annotated[bool, typer.Option("--hard", help="Without asking the guest.")] = False,
) -> Json:
    """Start an instance anew where it is."""
    return {"hard": hard}


def _refuse_what_cannot_be(here: DatabaseAccess, body: JsonDict) -> None:
    """Raise `Rejected` for an unknown name or a full quota before anything is sent.

    The conductor checks again; here it saves a look at the operation to learn of a typing error.
    """
    request = parse_request(BuildInstances.task, body)
    assert isinstance(request, BuildInstances)
    with here.store.begin() as uow:
        spec_of(request, uow)
