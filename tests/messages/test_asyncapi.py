"""The AsyncAPI document: every reference leads somewhere, and every example is valid.

Checked besides, by hand, with the specification's own JSON Schema and its reference parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator, FormatChecker

from conductor.cli.documents.asyncapi import asyncapi
from models.messages.answers import ANSWERS
from models.messages.notifications import NOTICES
from models.messages.requests import REQUESTS

DOCUMENT = asyncapi()
KEY = re.compile(r"^[\w.\-]+$")
LOCATION = re.compile(r"^\$message\.(header|payload)#(/[^/]+)+$")


def resolved(ref: str) -> Any:
    """Return what a reference of the document leads to."""
    assert ref.startswith("#/")
    found: Any = DOCUMENT
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def schema(part: dict[str, Any]) -> Draft7Validator:
    """Return what checks a part of the document, whose references are the document's."""
    whole = {**part, "components": DOCUMENT["components"]}
    return Draft7Validator(whole, format_checker=FormatChecker())


def test_it_says_what_it_is() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"]["title"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", DOCUMENT["info"]["version"])
    known = {
        *("asyncapi", "id", "info", "servers", "defaultContentType"),
        *("channels", "operations", "components"),
    }
    assert set(DOCUMENT) <= known


def test_every_reference_leads_somewhere() -> None:
    found = list(references(DOCUMENT))
    assert len(found) > len(REQUESTS)
    assert all(resolved(ref) is not None for ref in found)


def test_keys_of_all_maps_are_what_the_specification_allows() -> None:
    maps = [DOCUMENT["servers"], DOCUMENT["channels"], DOCUMENT["operations"]]
    maps += [channel["messages"] for channel in DOCUMENT["channels"].values()]
    maps += list(DOCUMENT["components"].values())
    assert all(KEY.match(key) for item in maps for key in item)


def test_servers_are_named_with_protocol_and_variables() -> None:
    for server in DOCUMENT["servers"].values():
        assert server["protocol"] == "amqp"
        used = re.findall(r"{(\w+)}", server["host"] + server["pathname"])
        assert set(used) == set(server["variables"])
        assert all("default" in variable for variable in server["variables"].values())


def test_the_channel_of_requests_is_the_exchange_and_its_routing_key() -> None:
    channel = DOCUMENT["channels"]["requests"]
    binding = channel["bindings"]["amqp"]
    assert channel["address"] == "conductor"
    assert binding["is"] == "routingKey"
    assert binding["exchange"] == {
        "name": "conductor",
        "type": "topic",
        "durable": True,
        "autoDelete": False,
    }
    assert len(channel["messages"]) == len(REQUESTS)


def test_the_channel_of_answers_is_a_queue_whose_name_only_the_sender_knows() -> None:
    channel = DOCUMENT["channels"]["answers"]
    assert channel["address"] is None
    assert channel["bindings"]["amqp"]["is"] == "queue"
    assert len(channel["messages"]) == len(ANSWERS)


def test_the_channel_of_notifications_is_a_topic_exchange_that_we_send_to() -> None:
    channel = DOCUMENT["channels"]["notifications"]
    assert channel["address"] == "{kind}.{event}"
    assert set(channel["parameters"]) == {"kind", "event"}
    exchange = channel["bindings"]["amqp"]["exchange"]
    assert (exchange["name"], exchange["type"]) == ("notifications", "topic")
    assert len(channel["messages"]) == len(NOTICES)
    operation = DOCUMENT["operations"]["notify"]
    assert operation["action"] == "send"
    assert resolved(operation["channel"]["$ref"]) is channel


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_an_operation_of_its_own_channel_with_a_reply(name: str) -> None:
    operation = DOCUMENT["operations"][name.removeprefix("conductor.")]
    assert operation["action"] == "receive"
    assert operation["summary"].endswith(".")
    prefix = operation["channel"]["$ref"] + "/messages/"
    assert all(ref["$ref"].startswith(prefix) for ref in operation["messages"])
    reply = operation["reply"]
    assert LOCATION.match(reply["address"]["location"])
    prefix = reply["channel"]["$ref"] + "/messages/"
    assert all(ref["$ref"].startswith(prefix) for ref in reply["messages"])


@pytest.mark.parametrize("name", [*REQUESTS, *ANSWERS, *NOTICES])
def test_every_message_has_a_schema_and_examples_that_it_allows(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name.removeprefix("conductor.")]
    assert message["name"] == name
    assert message["contentType"] == "application/json"
    assert LOCATION.match(message["correlationId"]["location"])
    Draft7Validator.check_schema(message["payload"])
    for example in message["examples"]:
        schema(message["payload"]).validate(example["payload"])
        schema(message.get("headers", {})).validate(example.get("headers", {}))


@pytest.mark.parametrize("name", REQUESTS)
def test_headers_of_requests_are_what_celery_sends(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name.removeprefix("conductor.")]
    headers = schema(message["headers"])
    id_ = message["examples"][0]["headers"]["id"]
    assert headers.is_valid({"lang": "py", "task": name, "id": id_, "retries": 0})
    assert not headers.is_valid({"task": "conductor.explode", "id": id_})
    assert not headers.is_valid({"task": name, "id": "me"})
    assert not headers.is_valid({"task": name})


@pytest.mark.parametrize(
    "payload",
    [
        [],
        [[], {}],
        [[1], {"context": {"project_id": "p"}}, {}],
        [[], {}, {}],
        [[], {"context": {"project_id": "p"}, "instance_id": "x", "colour": 1}, {}],
        {"instance_id": "x"},
    ],
)
def test_payloads_that_would_be_dead_letters_or_refused_are_invalid(payload: object) -> None:
    message = DOCUMENT["components"]["messages"]["stop_instance"]
    assert not schema(message["payload"]).is_valid(payload)


def test_what_celery_itself_sends_is_valid() -> None:
    message = DOCUMENT["components"]["messages"]["stop_instance"]
    arguments = message["examples"][0]["payload"][1]
    nothing = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert schema(message["payload"]).is_valid([[], arguments, nothing])
