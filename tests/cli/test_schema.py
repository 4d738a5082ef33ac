"""`conductor schema` and `conductor docs`: what they print needs no service."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from conductor.cli.documents.asyncapi import asyncapi
from models.messages.json_schemas import PUBLIC
from tests.cli.running import Cli, one_line


def test_all_schemas_come_as_one_object_by_name(cli: Cli) -> None:
    schemas = cli("schema", "-o", "json").json
    assert list(schemas) == list(PUBLIC)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_or_as_one_schema_a_line(cli: Cli) -> None:
    assert [line["title"] for line in cli("schema", "-o", "jsonl").lines] == list(PUBLIC)


@pytest.mark.parametrize("name", ["build_instances", "conductor.build_instances"])
def test_one_schema_by_its_name(cli: Cli, name: str) -> None:
    schema = cli("schema", "--message", name, "-o", "json").json
    assert schema["title"] == "conductor.build_instances"
    assert "count" in schema["properties"]


def test_messages_of_our_own_processes_have_schemas_too(cli: Cli) -> None:
    assert cli("schema", "--message", "reports.hello").json["title"] == "reports.hello"


def test_an_unknown_message_is_named(cli: Cli) -> None:
    result = cli("schema", "--message", "explode")
    assert result.code == 2
    assert one_line(result.err)
    assert "message is explode: should be one of" in result.err


def test_the_asyncapi_document_is_printed_whole(cli: Cli) -> None:
    assert cli("schema", "--format", "asyncapi", "-o", "json").json == asyncapi()
    assert cli("schema", "--format", "asyncapi", "--message", "build_instances").code == 2


def test_a_person_gets_tables(cli: Cli) -> None:
    every = cli("schema", "-o", "table").out
    assert all(name in every for name in PUBLIC)
    one = cli("schema", "--message", "build_instances", "-o", "table").out
    assert "integer ≥ 1, ≤ 1,000" in one


def test_a_page_is_printed_as_markdown(cli: Cli) -> None:
    assert cli("docs", "operations").out.startswith("# Operations\n")
    assert cli("docs", "messages").out.startswith("# Messages\n")


def test_an_unknown_page_is_named(cli: Cli) -> None:
    result = cli("docs", "poems")
    assert result.code == 2
    assert "page is poems: one of extra-specs, messages, operations" in result.err
