"""Print the schemas of the messages, for services that send or read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.json import JSON

from conductor.cli.documents.asyncapi import asyncapi
from conductor.cli.documents.message_fields import field_rows
from conductor.cli.rendering.output import Format, Output, format_of, show_one, write_lines
from conductor.cli.rendering.text_tables import table_of
from conductor.settings import read_settings
from models.errors import Rejected
from models.messages.base import Versioned
from models.messages.json_schemas import PUBLIC, json_schema, named


class Kind(StrEnum):
    """In which language the messages are described."""

    JSON_SCHEMA = "json-schema"
    ASYNCAPI = "asyncapi"


def add_to(app: typer.Typer) -> None:
    """Add `schema`."""
    app.command("schema")(schema)


def schema(
    message: Annotated[
        str | None, typer.Option(help="Only this message, such as build_instances.")
    ] = None,
    kind: Annotated[Kind, typer.Option("--format", help="How they are described.")] = (
        Kind.JSON_SCHEMA
    ),
    output: Output = None,
) -> None:
    """Print JSON Schemas of the public messages, or one AsyncAPI document. Needs no service."""
    read_settings()
    if kind is Kind.ASYNCAPI:
        _print_asyncapi(message, output)
    elif message is not None:
        one = named(message)
        show_one(json_schema(one), output, lambda: table_of(_fields(one), _FIELD))
    else:
        _print_all(output)


def _print_asyncapi(message: str | None, output: Format | None) -> None:
    if message is not None:
        rule = "an AsyncAPI document holds all messages: leave the option out"
        raise Rejected("option_invalid", f"message is {message}: {rule}", key="message")
    document = asyncapi()
    show_one(document, output, lambda: JSON(json.dumps(document)))


def _print_all(output: Format | None) -> None:
    schemas = {name: json_schema(kind) for name, kind in PUBLIC.items()}
    if format_of(output) is Format.JSONL:
        write_lines(schemas.values())
    else:
        rows = [_summary(name, kind) for name, kind in PUBLIC.items()]
        show_one(schemas, output, lambda: table_of(rows, _MESSAGE))


def _summary(name: str, kind: type[Versioned]) -> Mapping[str, Any]:
    about = (kind.__doc__ or "").partition("\n")[0]
    return {"name": name, "version": kind.current_version, "about": about}


def _fields(kind: type[Versioned]) -> list[Mapping[str, Any]]:
    return [row.to_json() for row in field_rows(json_schema(kind))]


_MESSAGE = (
    ("MESSAGE", lambda row: row["name"]),
    ("VERSION", lambda row: row["version"]),
    ("MEANS", lambda row: row["about"]),
)
_FIELD = (
    ("FIELD", lambda row: row["name"]),
    ("VALUE", lambda row: row["value"]),
    ("DEFAULT", lambda row: row["default"]),
    ("MEANS", lambda row: row["meaning"]),
)
