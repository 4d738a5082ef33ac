"""Older versions are converted, newer ones refused as such: proved with a second version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

from models.errors import Rejected
from models.ids import HOST_RULE
from models.messages.base import parse
from models.messages.json_schemas import json_schema
from models.messages.requests import REQUESTS, InstanceRequest, Request, parse_request
from models.messages.versions import Converters, newer, to_current

TASK = "conductor.stop_instance"
FIRST = {
    "context": {"project_id": "demo"},
    "instance_id": "c2b7e0a4-50b1-5d0e-8a3e-6f1d2c9b7a55",
}


class StopInLater(InstanceRequest):
    """Stop an instance, as some later release understands it: it must be told how."""

    task: ClassVar[str] = TASK
    current_version: ClassVar[int] = 3

    version: Annotated[int, Field(ge=1)] = 3
    how: Literal["gently", "at once"]
    within_s: int


def _told_how(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "force": False}


def _in_words(body: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in body.items() if key != "force"}
    return {**kept, "how": "at once" if body["force"] else "gently", "within_s": 60}


KINDS: Mapping[str, type[Request]] = {**REQUESTS, TASK: StopInLater}
CONVERTERS: Converters = {(TASK, 1): _told_how, (TASK, 2): _in_words}


def later(body: Mapping[str, Any]) -> Request:
    return parse_request(TASK, body, KINDS, CONVERTERS)


def test_the_first_version_is_converted_step_by_step() -> None:
    request = later(FIRST)
    assert isinstance(request, StopInLater)
    assert (request.version, request.how, request.within_s) == (3, "gently", 60)
    assert later({**FIRST, "version": 1}) == request


def test_the_second_version_takes_the_second_step_only() -> None:
    request = later({**FIRST, "version": 2, "force": True})
    assert isinstance(request, StopInLater)
    assert request.how == "at once"


def test_the_current_version_is_not_converted() -> None:
    request = later({**FIRST, "version": 3, "how": "gently", "within_s": 5})
    assert isinstance(request, StopInLater)
    assert request.within_s == 5
    with pytest.raises(Rejected) as caught:
        later({**FIRST, "version": 3, "force": True, "how": "gently", "within_s": 5})
    assert caught.value.key == "force"


def test_a_field_that_no_version_knows_is_refused_by_name_after_conversion() -> None:
    with pytest.raises(Rejected) as caught:
        later({**FIRST, "colour": "red"})
    assert (caught.value.code, caught.value.key) == ("field_unknown", "colour")


def test_what_is_wrong_in_an_older_version_is_still_refused() -> None:
    with pytest.raises(Rejected) as caught:
        later({**FIRST, "instance_id": "vm"})
    assert caught.value.key == "instance_id"


def test_a_newer_version_is_refused_before_its_fields_are_looked_at() -> None:
    with pytest.raises(Rejected) as caught:
        later({"version": 4, "everything": "else"})
    assert (caught.value.code, caught.value.key) == ("version_unsupported", "version")
    expected = "version is 4: conductor.stop_instance is understood up to version 3"
    assert str(caught.value) == expected


def test_todays_release_refuses_the_later_one() -> None:
    with pytest.raises(Rejected) as caught:
        parse_request(TASK, {**FIRST, "version": 3, "how": "gently", "within_s": 5})
    assert caught.value.code == "version_unsupported"


def test_a_version_that_nobody_converts_any_more_says_from_which_on_it_would_be_read() -> None:
    only_the_second = {(TASK, 2): _in_words}
    with pytest.raises(Rejected) as caught:
        parse_request(TASK, FIRST, KINDS, only_the_second)
    assert caught.value.code == "version_unsupported"
    assert "no longer understood before 2" in str(caught.value)


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, True, None, [], {}])
def test_a_version_that_is_none_is_refused_as_a_field(version: object) -> None:
    body = {**FIRST, "version": version}
    assert newer(TASK, body, 1) is None
    with pytest.raises(Rejected) as caught:
        parse_request(TASK, body)
    assert (caught.value.code, caught.value.key) == ("field_invalid", "version")


def test_conversion_changes_no_argument() -> None:
    body = {**FIRST, "context": {"project_id": "demo"}}
    to_current(TASK, body, 3, CONVERTERS)
    assert body == FIRST


def test_what_is_current_is_passed_on_untouched() -> None:
    assert to_current(TASK, FIRST, 1) is FIRST


def test_a_later_schema_wants_its_version_said() -> None:
    schema = json_schema(StopInLater)
    assert schema["properties"]["version"]["const"] == 3
    assert "version" in schema["required"]
    assert schema["$id"].endswith(":3")


def test_a_message_made_by_the_later_release_says_its_version() -> None:
    made = parse(StopInLater, {**FIRST, "version": 3, "how": "gently", "within_s": 5})
    assert made.to_json()["version"] == 3


@pytest.mark.parametrize(
    ("task", "wrong", "message"),
    [
        (
            "conductor.cache_images",
            {"aggregate": "rack", "images": []},
            "images is []: should have at least 1 item",
        ),
        (
            "conductor.migrate_instance",
            {"instance_id": FIRST["instance_id"], "host": ""},
            f'host is "": should be {HOST_RULE}',
        ),
    ],
)
def test_a_rule_is_told_in_the_words_of_json(
    task: str, wrong: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(Rejected) as caught:
        parse_request(task, {"context": {"project_id": "demo"}, **wrong})
    assert caught.value.message == message
