"""What many requests carry: ids, and who asks."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field

from models.ids import is_uuid
from models.messages.base import Message
from models.messages.name_rules import Name, Words


def _checked_id(value: str) -> str:
    if not is_uuid(value.lower()):
        raise ValueError("should be a UUID")
    return value.lower()


def _described(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        raise ValueError("should say which one it is")
    return value


Id: TypeAlias = Annotated[
    str, AfterValidator(_checked_id), Field(json_schema_extra={"format": "uuid"})
]
Described: TypeAlias = Annotated[
    dict[str, Any],
    AfterValidator(_described),
    Field(json_schema_extra={"minProperties": 1}),
]


class Context(Message):
    """Who asks: ids only, never credentials."""

    project_id: Annotated[Name, Field(description="The project that owns what is asked for.")]
    user_id: Annotated[Words, Field(description="Recorded with the operation.")] = ""
    request_id: Annotated[Words, Field(description="The sender's own id, for its logs.")] = ""
