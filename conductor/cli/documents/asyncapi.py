"""The public messages as one AsyncAPI 3.0 document, for the tools of other services."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from kombu import Exchange

from models.json_types import JsonDict
from models.messages.answers import ANSWERS
from models.messages.base import Versioned
from models.messages.examples import EXAMPLES, OPERATION_ID
from models.messages.internal import CONDUCTOR
from models.messages.json_schemas import PUBLIC, components
from models.messages.notifications import NOTICES, OperationNotified
from models.messages.requests import PREFIX, REQUESTS
from tasks.routing import EXCHANGE, NOTIFICATIONS

_JSON: Final = "application/json"
_AMQP: Final = "0.3.0"
_SCHEMAS: Final = "#/components/schemas/{model}"
_REPLY_TO: Final = "The AMQP property `reply_to`: the queue of the sender that gets the answer."
_ABOUT: Final = """\
Requests are Celery task messages (protocol 2) that any AMQP client can send. Nothing is declared
by senders: exchange and queue exist. The header `id` is a UUID chosen by the sender; it names the
operation, and a message that is sent again under the same id is the same operation."""


def asyncapi() -> JsonDict:
    """Return the document: servers, channels, operations, messages, schemas."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "VM conductor",
            "version": version("vm-conductor"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _JSON,
        "servers": {"broker": _server()},
        "channels": {
            "requests": _requests(),
            "answers": _answers(),
            "notifications": _notifications(),
        },
        "operations": {
            **{_short(name): _operation(name) for name in REQUESTS},
            "notify": _notify(),
        },
        "components": {
            "messages": {
                **{_short(name): _request(name, kind) for name, kind in REQUESTS.items()},
                **{
                    _short(name): _outgoing(name, kind)
                    for name, kind in {**ANSWERS, **NOTICES}.items()
                },
            },
            "schemas": components(PUBLIC.values(), _SCHEMAS),
            "securitySchemes": {"login": {"type": "userPassword"}},
        },
    }


def _server() -> JsonDict:
    return {
        "host": "{host}",
        "pathname": "/{vhost}",
        "protocol": "amqp",
        "protocolVersion": "0.9.1",
        "description": "RabbitMQ; `amqps` where it is set up for TLS.",
        "variables": {"host": {"default": "localhost:5672"}, "vhost": {"default": "%2F"}},
        "security": [{"$ref": "#/components/securitySchemes/login"}],
    }


def _requests() -> JsonDict:
    return {
        "address": CONDUCTOR,
        "description": "Publish here; the routing key leads to the queue of the same name.",
        "messages": {_short(name): _ref("components/messages", name) for name in REQUESTS},
        "bindings": {
            "amqp": _through(EXCHANGE),
        },
    }


def _through(exchange: Exchange) -> JsonDict:
    described = {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "autoDelete": False,
    }
    return {"is": "routingKey", "exchange": described, "bindingVersion": _AMQP}


def _notifications() -> JsonDict:
    return {
        "address": "{kind}.{event}",
        "description": "Bind a queue of your own here; `#` is everything.",
        "parameters": {
            "kind": {"description": "Kind of operation.", "examples": ["build_instance"]},
            "event": {"enum": ["start", "end", "error"], "description": "What became of it."},
        },
        "messages": {_short(name): _ref("components/messages", name) for name in NOTICES},
        "bindings": {"amqp": _through(NOTIFICATIONS)},
    }


def _notify() -> JsonDict:
    return {
        "action": "send",
        "summary": _sentence(OperationNotified),
        "channel": {"$ref": "#/channels/notifications"},
        "messages": [_ref("channels/notifications/messages", name) for name in NOTICES],
    }


def _answers() -> JsonDict:
    return {
        "address": None,
        "description": "A queue of the sender's own, which it declares and names in `reply_to`.",
        "messages": {_short(name): _ref("components/messages", name) for name in ANSWERS},
        "bindings": {"amqp": {"is": "queue", "queue": {}, "bindingVersion": _AMQP}},
    }


def _operation(name: str) -> JsonDict:
    return {
        "action": "receive",
        "summary": _sentence(REQUESTS[name]),
        "channel": {"$ref": "#/channels/requests"},
        "messages": [_ref("channels/requests/messages", name)],
        "reply": {
            "address": {"location": "$message.header#/reply_to", "description": _REPLY_TO},
            "channel": {"$ref": "#/channels/answers"},
            "messages": [_ref("channels/answers/messages", answer) for answer in ANSWERS],
        },
    }


def _request(name: str, kind: type[Versioned]) -> JsonDict:
    arguments = [
        {"type": "array", "maxItems": 0, "description": "Positional arguments: none."},
        {"$ref": _SCHEMAS.format(model=kind.__name__)},
        {
            "type": ["object", "null"],
            "additionalProperties": {"type": "null"},
            "description": "What Celery would call afterwards: nothing.",
        },
    ]
    return {
        **_message(name, kind),
        "correlationId": {"location": "$message.header#/id"},
        "headers": _headers(name),
        "payload": {
            "type": "array",
            "items": arguments,
            "additionalItems": False,
            "minItems": len(arguments),
        },
        "examples": [
            {
                "headers": {"task": name, "id": OPERATION_ID},
                "payload": [[], EXAMPLES[name], {}],
            }
        ],
    }


def _headers(name: str) -> JsonDict:
    return {
        "type": "object",
        "properties": {
            "task": {"const": name, "description": "The name of the message."},
            "id": {
                "type": "string",
                "format": "uuid",
                "description": "The id of the operation, chosen by the sender.",
            },
            "reply_to": {"type": "string", "description": _REPLY_TO},
        },
        "required": ["task", "id"],
    }


def _outgoing(name: str, kind: type[Versioned]) -> JsonDict:
    return {
        **_message(name, kind),
        "correlationId": {"location": "$message.payload#/operation_id"},
        "payload": {"$ref": _SCHEMAS.format(model=kind.__name__)},
        "bindings": {"amqp": {"messageType": name, "bindingVersion": _AMQP}},
        "examples": [{"payload": EXAMPLES[name]}],
    }


def _message(name: str, kind: type[Versioned]) -> JsonDict:
    return {
        "name": name,
        "title": kind.__name__,
        "summary": _sentence(kind),
        "contentType": _JSON,
        "x-version": kind.current_version,
    }


def _ref(place: str, name: str) -> JsonDict:
    return {"$ref": f"#/{place}/{_short(name)}"}


def _short(name: str) -> str:
    return name.removeprefix(PREFIX)


def _sentence(kind: type[Versioned]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]
