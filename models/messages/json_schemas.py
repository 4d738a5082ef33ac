"""JSON Schemas (draft 2020-12) of every message, generated from the classes that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from models.errors import Rejected
from models.messages.answers import ANSWERS
from models.messages.base import Message, Versioned
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.internal import (
    Canary,
    Heartbeat,
    HostRegistration,
    Instruction,
    InventoryReport,
    Progress,
    Refusal,
    Reply,
    SelectHosts,
)
from models.messages.notifications import NOTICES
from models.messages.requests import PREFIX, REQUESTS

PUBLIC: Final[Mapping[str, type[Versioned]]] = {**REQUESTS, **ANSWERS, **NOTICES}
"""What other services send, what they are sent, and what they can listen to."""

INTERNAL: Final[Mapping[str, type[Versioned]]] = {
    kind.task: kind
    for kind in (
        SelectHosts,
        Instruction,
        GuestDefinition,
        Reply,
        Progress,
        Refusal,
        HostRegistration,
        Heartbeat,
        Canary,
        InventoryReport,
    )
}
"""What our own processes, perhaps of different releases, send each other."""


class _Plain(GenerateJsonSchema):
    """Without a title a field: it would only repeat the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Never."""
        return False


def named(name: str) -> type[Versioned]:
    """Return the message of that name; requests may be named without their prefix."""
    known = {**PUBLIC, **INTERNAL}
    kind = known.get(name) or known.get(PREFIX + name)
    if kind is None:
        rule = f"should be one of {', '.join(known)}"
        raise Rejected("message_unknown", f"message is {name}: {rule}", key="message")
    return kind


def json_schema(kind: type[Versioned]) -> dict[str, Any]:
    """Return the schema of one message as a document of its own, with its version in `$id`."""
    schema = kind.model_json_schema(schema_generator=_Plain)
    schema.pop("title", None)
    return {
        "$schema": _Plain.schema_dialect,
        "$id": f"urn:vm-conductor:{kind.task}:{kind.current_version}",
        "title": kind.task,
        **_with_version(schema, kind),
    }


def components(kinds: Iterable[type[Message]], template: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of messages and of what they hold, by class name.

    `template` is how they refer to each other, with `{model}` for the class name.
    """
    wanted = tuple(kinds)
    _, document = models_json_schema(
        [(kind, "validation") for kind in wanted], ref_template=template, schema_generator=_Plain
    )
    schemas: dict[str, dict[str, Any]] = document["$defs"]
    for kind in wanted:
        if issubclass(kind, Versioned):
            schemas[kind.__name__] = _with_version(schemas[kind.__name__], kind)
    return schemas


def _with_version(schema: Mapping[str, Any], kind: type[Versioned]) -> dict[str, Any]:
    """Say which version the schema is of; only the first may be left out."""
    current = kind.current_version
    version = {"type": "integer", "const": current, "description": "Version of the message."}
    required = list(schema.get("required", ()))
    if current == 1:
        version["default"] = current
    else:
        required.insert(0, "version")
    properties = {**schema["properties"], "version": version}
    return {**schema, "properties": properties, "required": required}
