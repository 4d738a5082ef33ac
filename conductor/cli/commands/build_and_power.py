"""Ask for work: build, start and stop instances. Each prints its operation's id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from conductor.cli.arguments import pairs
from conductor.cli.options import DEFAULT_PROJECT, Deadline, Project, Timeout, Wait
from conductor.cli.rendering.output import Output
from conductor.cli.requests.send_and_wait import Manner, Which, ask_for, without_unset
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S
from conductor.cli.store_queries import instance_named
from conductor.operations.steps.build_request import spec_of
from conductor.processes.database_access import DatabaseAccess, open_database
from models.json_types import JsonDict
from models.messages.requests import (
    BuildInstances,
    InstanceRequest,
    StartInstance,
    StopInstance,
    parse_request,
)


def add_to(app: typer.Typer) -> None:
    """Add `build`, `start` and `stop`."""
    app.command("build")(build)
    app.command("start")(_verb(StartInstance, "Power a stopped instance on."))
    app.command("stop")(_verb(StopInstance, "Power an active instance off; it keeps its place."))


def build(
    flavor: Annotated[str, typer.Option(help="The flavor's name.")],
    image: Annotated[str, typer.Option(help="The image's id or name.")],
    name: Annotated[str, typer.Option(help="Numbered when there are several.")] = "instance",
    count: Annotated[int, typer.Option(help="How many, from 1 to 1000: all or none.")] = 1,
    zone: Annotated[str | None, typer.Option(help="Only in this availability zone.")] = None,
    host: Annotated[str | None, typer.Option(help="On this host and nowhere else.")] = None,
    group: Annotated[str | None, typer.Option(help="A member of this server group.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
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
    body = {
        "context": {"project_id": project},
        "instance": {field: value for field, value in instance.items() if value is not None},
        "count": count,
        "deadline_s": deadline,
    }
    with open_database() as here:
        _refuse_what_cannot_be(here, body)
        ask_for(here, BuildInstances.task, body, Manner(wait, timeout, output))


def _verb(kind: type[InstanceRequest], text: str) -> Callable[..., None]:
    def ask(
        instance: Which,
        project: Project = DEFAULT_PROJECT,
        deadline: Deadline = None,
        wait: Wait = False,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        output: Output = None,
    ) -> None:
        with open_database() as here:
            with here.store.read() as uow:
                found = instance_named(uow, instance)
            body = {
                "context": {"project_id": project},
                "instance_id": found.id,
                "deadline_s": deadline,
            }
            ask_for(here, kind.task, body, Manner(wait, timeout, output), instance)

    ask.__doc__ = text
    return ask


def _refuse_what_cannot_be(here: DatabaseAccess, body: JsonDict) -> None:
    """Raise `Rejected` for an unknown name or a full quota before anything is sent.

    The conductor checks again; here it saves asking for the operation to hear of a typing error.
    """
    request = parse_request(BuildInstances.task, without_unset(body))
    assert isinstance(request, BuildInstances)
    with here.store.begin() as uow:
        spec_of(request, uow)
