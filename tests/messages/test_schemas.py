"""The schemas say what the classes read: whatever one of them refuses, the other does too."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from models.errors import Rejected
from models.messages.answers import ANSWERS
from models.messages.base import parse
from models.messages.json_schemas import INTERNAL, PUBLIC, json_schema, named
from tests.messages.message_examples import ALL_EXAMPLES, ALL_KINDS

WRONG: tuple[Any, ...] = (None, -1, "", "x" * 300, [], {}, True)
ID = "c2b7e0a4-50b1-5d0e-8a3e-6f1d2c9b7a55"
CONTEXT = {"project_id": "demo"}
INSTANCE = {"name": "vm", "flavor": "small", "image": "debian"}
Path = tuple[str | int, ...]

BY_ANOTHER_FIELD = "conductor.define_entry"
"""What its `body` may hold depends on its `entry`: the class knows more than the schema."""
READ = [name for name in ALL_KINDS if name not in ANSWERS and name != BY_ANOTHER_FIELD]
"""What our processes read themselves; answers they only send."""


def validator(name: str) -> Draft202012Validator:
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(json_schema(ALL_KINDS[name]), format_checker=checker)


def is_read(name: str, body: dict[str, Any]) -> bool:
    try:
        parse(ALL_KINDS[name], body)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("name", ALL_KINDS)
def test_every_schema_is_one_of_draft_2020_12(name: str) -> None:
    schema = json_schema(ALL_KINDS[name])
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:vm-conductor:{name}:{ALL_KINDS[name].current_version}"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", ALL_KINDS)
def test_every_example_is_valid(name: str) -> None:
    assert not list(validator(name).iter_errors(ALL_EXAMPLES[name]))


@pytest.mark.parametrize("name", READ)
def test_schema_and_class_agree_about_every_field_left_out_or_added(name: str) -> None:
    schema = validator(name)
    for body in (*_without_each(ALL_EXAMPLES[name]), *_with_more(ALL_EXAMPLES[name])):
        assert schema.is_valid(body) == is_read(name, body), body


@pytest.mark.parametrize("name", READ)
def test_schema_and_class_agree_about_values_of_every_kind(name: str) -> None:
    schema = validator(name)
    disagreed = [
        (path, value)
        for path in _paths(ALL_EXAMPLES[name])
        for value in WRONG
        if schema.is_valid(body := _replaced(ALL_EXAMPLES[name], path, value))
        != is_read(name, body)
    ]
    assert not disagreed


def test_no_entry_that_is_read_is_against_the_schema() -> None:
    schema, example = validator(BY_ANOTHER_FIELD), ALL_EXAMPLES[BY_ANOTHER_FIELD]
    changed = [_replaced(example, path, value) for path in _paths(example) for value in WRONG]
    read = [body for body in (*changed, *_without_each(example)) if is_read(BY_ANOTHER_FIELD, body)]
    assert read
    assert all(schema.is_valid(body) for body in read)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("conductor.build_instances", {"context": CONTEXT, "instance": INSTANCE}),
        (
            "conductor.build_instances",
            {
                "context": CONTEXT,
                "instance": {**INSTANCE, "image": None, "block_devices": [{"volume_id": "v"}]},
            },
        ),
        ("conductor.stop_instance", {"context": CONTEXT, "instance_id": ID.upper()}),
        ("conductor.stop_instance", {"context": CONTEXT, "instance_id": ID, "deadline_s": 0.5}),
    ],
)
def test_little_is_needed(name: str, body: dict[str, Any]) -> None:
    assert is_read(name, body)
    assert validator(name).is_valid(body)


@pytest.mark.parametrize(
    ("name", "body", "key"),
    [
        ("conductor.stop_instance", {"context": CONTEXT, "instance_id": "vm"}, "instance_id"),
        (
            "conductor.build_instances",
            {"context": CONTEXT, "instance": {"name": "vm", "flavor": "small"}},
            "instance",
        ),
        (
            "conductor.build_instances",
            {"context": CONTEXT, "instance": {**INSTANCE, "flavor": {"vcpus": 0}}},
            "instance.flavor",
        ),
        (
            "conductor.build_instances",
            {"context": CONTEXT, "instance": {**INSTANCE, "image": {"id": "i", "size": 3}}},
            "instance.image.size",
        ),
        ("conductor.resize_instance", {"context": {**CONTEXT, "token": "s"}}, "context.token"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(name: str, body: dict[str, Any], key: str) -> None:
    assert not validator(name).is_valid(body)
    with pytest.raises(Rejected) as caught:
        parse(ALL_KINDS[name], body)
    assert str(caught.value.key).startswith(key)
    assert str(caught.value).startswith(key)


def test_requests_are_named_with_or_without_their_prefix() -> None:
    assert named("build_instances") is named("conductor.build_instances")
    assert named("reports.reply") is INTERNAL["reports.reply"]
    with pytest.raises(Rejected, match="should be one of conductor"):
        named("explode")


def test_public_and_internal_messages_share_no_name() -> None:
    assert not set(PUBLIC) & set(INTERNAL)
    assert all(name == kind.task for name, kind in ALL_KINDS.items())


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the place of everything in an example but the whole."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _replaced(body: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = deepcopy(body)
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _without_each(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in _paths(body):
        changed = deepcopy(body)
        del _at(changed, path[:-1])[path[-1]]
        yield changed


def _with_more(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in ((), *_paths(body)):
        if isinstance(_at(body, path), dict):
            yield _replaced(body, (*path, "colour"), "red")


def _at(body: Any, path: Path) -> Any:
    for key in path:
        body = body[key]
    return body
