"""Commands that send one request about one instance: all but the fields of their own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from conductor.cli.requests.request_options import (
    InstanceName,
    RequestOptions,
    with_request_options,
)
from conductor.cli.requests.send_and_wait import submit
from conductor.cli.store_queries import instance_named
from conductor.operations.steps.build_request import flavor_of, image_of
from conductor.processes.database_access import open_database
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.messages.requests import InstanceRequest


def instance_command(
    kind: type[InstanceRequest], fields: Callable[..., Json]
) -> Callable[..., None]:
    """Return the command that sends a request of this kind about one instance.

    `fields` has the command's name, help and own options, and returns them as fields of the
    request. Names in it are looked up before anything is sent: `Rejected` for an unknown one.
    """

    def command(instance: InstanceName, options: RequestOptions, **given: Any) -> None:
        own = fields(**given)
        with open_database() as here:
            with here.store.read() as uow:
                found = instance_named(uow, instance)
                _refuse_unknown_names(uow, own)
            submit(here, kind.task, {"instance_id": found.id, **own}, options, instance)

    parameters = signature(fields, eval_str=True).parameters.values()
    first, options, _ = signature(command, eval_str=True).parameters.values()
    command.__name__, command.__doc__ = fields.__name__, fields.__doc__
    command.__signature__ = signature(fields).replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[
            entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in (first, *parameters, options)
        ],
        return_annotation=None,
    )
    return with_request_options(command)


def _refuse_unknown_names(uow: UnitOfWork, fields: Json) -> None:
    """Raise `Rejected` for a typing error before anything is sent; the conductor checks again."""
    if fields.get("flavor") is not None:
        flavor_of(fields["flavor"], uow, "flavor")
    if fields.get("image") is not None:
        image_of(fields["image"], uow, "image")
    host = fields.get("host")
    if host is not None and uow.hosts.get(host) is None:
        raise Rejected("host_unknown", f"host is {host}: no such host", key="host")
