"""Every message that was ever sent is still understood, and none changes by accident."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from models.errors import Rejected
from models.messages.base import parse
from models.messages.json_schemas import json_schema
from models.messages.requests import REQUESTS, parse_request
from models.messages.versions import CONVERTERS
from tests.messages.golden import FOLDER, HOW, Golden, current, fields, read_all
from tests.messages.message_examples import ALL_EXAMPLES, ALL_KINDS

GOLDEN = list(read_all())


@pytest.mark.parametrize("name", ALL_KINDS)
def test_a_schema_changes_only_with_its_version_or_on_purpose(name: str) -> None:
    now = current(ALL_KINDS[name])
    assert now.path.exists(), f"{now.path.name} is missing: {HOW}"
    assert now.path.read_text() == now.text(), f"{name} has changed: {HOW}"


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.path.stem)
def test_an_example_of_every_version_is_still_read(golden: Golden) -> None:
    kind = ALL_KINDS[golden.message]
    message = parse(kind, golden.example)
    assert message.to_json()["version"] == kind.current_version
    assert golden.example["version"] == golden.version


@pytest.mark.parametrize("name", ALL_KINDS)
def test_there_is_a_golden_file_and_a_converter_of_every_older_version(name: str) -> None:
    kind = ALL_KINDS[name]
    kept = {golden.version for golden in GOLDEN if golden.message == name}
    assert kept == set(range(1, kind.current_version + 1))
    assert {version for task, version in CONVERTERS if task == name} == kept - {
        kind.current_version
    }


def test_no_golden_file_is_of_a_message_that_nobody_reads() -> None:
    assert {golden.message for golden in GOLDEN} == set(ALL_KINDS)
    assert {path.name for path in FOLDER.iterdir()} == {golden.path.name for golden in GOLDEN}


@pytest.mark.parametrize("name", ALL_KINDS)
def test_a_message_is_made_in_its_current_version(name: str) -> None:
    kind = ALL_KINDS[name]
    assert kind.model_fields["version"].default == kind.current_version


@pytest.mark.parametrize("name", ALL_KINDS)
def test_an_example_leaves_no_field_out(name: str) -> None:
    schema = json_schema(ALL_KINDS[name])
    missing = list(_missing(schema, ALL_EXAMPLES[name], schema.get("$defs", {}), name))
    assert not missing


@pytest.mark.parametrize("name", ALL_KINDS)
def test_unknown_fields_are_refused_by_name(name: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse(ALL_KINDS[name], {**ALL_EXAMPLES[name], "colour": "red"})
    assert (caught.value.code, caught.value.key) == ("field_unknown", "colour")
    assert str(caught.value) == "colour is not a known field"


@pytest.mark.parametrize("name", ALL_KINDS)
def test_a_message_that_does_not_say_its_version_is_of_the_first(name: str) -> None:
    first = next(g for g in GOLDEN if (g.message, g.version) == (name, 1))
    silent = {key: value for key, value in first.example.items() if key != "version"}
    assert parse(ALL_KINDS[name], silent) == parse(ALL_KINDS[name], first.example)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_found_by_their_task_name(name: str) -> None:
    assert parse_request(name, ALL_EXAMPLES[name]) == parse(REQUESTS[name], ALL_EXAMPLES[name])


def _missing(
    schema: Mapping[str, Any], example: Any, defs: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield every field of a schema, and of the objects in it, that an example does not have."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    branches = [s for s in schema.get("anyOf", ()) if s.get("type") == "object" or "$ref" in s]
    if branches and "properties" not in schema and isinstance(example, dict):
        yield from min((list(_missing(s, example, defs, path)) for s in branches), key=len)
    if isinstance(example, list) and isinstance(schema.get("items"), dict):
        for item in example:
            yield from _missing(schema["items"], item, defs, path)
    if isinstance(example, dict):
        for name, field in schema.get("properties", {}).items():
            if name not in example:
                yield f"{path}.{name}"
            else:
                yield from _missing(field, example[name], defs, f"{path}.{name}")


def test_fields_that_came_or_went_are_noticed_wherever_they_are() -> None:
    before = {"properties": {"a": {}}, "$defs": {"In": {"properties": {"b": {}}}}}
    after = {"properties": {"a": {}}, "$defs": {"In": {"properties": {"c": {}}}}}
    assert fields(before) ^ fields(after) == {"In.b", "In.c"}


def test_golden_files_are_json_of_one_form() -> None:
    for golden in GOLDEN:
        assert golden.path.read_text() == golden.text()
        assert json.loads(golden.path.read_text())["message"] == golden.message
