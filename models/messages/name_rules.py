"""Names and words in messages: what reaches queues, folders, terminals and logs is checked here."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from models.ids import (
    HOST_PATTERN,
    HOST_RULE,
    LONGEST_HOST,
    LONGEST_NAME,
    NAME_PATTERN,
    NAME_RULE,
    is_host_name,
    is_name,
)


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"should be {NAME_RULE}")
    return text


def _host(text: str) -> str:
    if not is_host_name(text):
        raise ValueError(f"should be {HOST_RULE}")
    return text


def _words(text: str) -> str:
    if len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"should be at most {LONGEST_NAME} printable characters")
    return text


NameKey = Annotated[str, AfterValidator(_name)]
"""A name as the key of an object."""

# The validator says the whole rule, the pattern what schemas can say of it.
Name = Annotated[
    NameKey,
    Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_NAME, "pattern": NAME_PATTERN}),
]
Host = Annotated[
    str,
    AfterValidator(_host),
    Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_HOST, "pattern": HOST_PATTERN}),
]
Words = Annotated[str, AfterValidator(_words), Field(json_schema_extra={"maxLength": LONGEST_NAME})]
"""Text that is only kept and shown; it may be empty."""
