"""The pages of the documentation that are generated from the code they describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from conductor.cli.documents.message_fields import field_rows
from conductor.cli.documents.operation_page import operations_page
from models.hardware.requirements.known_keys import KnownKey, rows
from models.messages.answers import ANSWERS
from models.messages.base import Versioned
from models.messages.catalogue import CATALOGUE
from models.messages.examples import EXAMPLES
from models.messages.json_schemas import PUBLIC, components
from models.messages.notifications import NOTICES
from models.messages.requests import REQUESTS, Request

_COMMON: Final = frozenset(Request.model_fields)
_INTRO: Final = """\
# Messages

Generated from the classes in `models/messages` by `conductor docs messages`; do not edit.

Requests go to the exchange `conductor` with the routing key `conductor`, as Celery tasks by name
with keyword arguments, or as the same AMQP message of any other client: [senders.md](senders.md)
shows both. A field that is not listed here is refused by name. `conductor schema` prints JSON
Schemas of all of them, `conductor schema --format asyncapi` the whole as an AsyncAPI document.

Every message says its version, 1 where it does not. Older versions are converted. A newer one than
the running release knows fails with the code `version_unsupported` and is kept as a dead letter
until that release is upgraded.
"""
_ANSWERED: Final = """\
One of these comes to the queue that a request names in `reply_to`, as plain JSON; the AMQP property
`type` is its name and `correlation_id` the id of the request.
"""
_NOTIFIED: Final = """\
Published on the topic exchange `notifications` with the routing key `<kind>.<event>`, such as
`build_instance.end`: when an operation on an instance is accepted, and when it has ended. Plain
JSON; the AMQP property `type` is its name and `correlation_id` the id of the operation. One that
comes again has the same `message_id`.
"""
_SPECS: Final = """\
# Extra specs and image properties

Generated from `models/hardware/requirements/known_keys.py` by `conductor docs extra-specs`: do not
edit.

Nothing that is accepted is ignored. A key is acted on, or refused as long as no host can grant it;
what an image says of itself and asks nothing with is kept as information. A name that is not listed
is refused, with the nearest one that is, when the flavor or image is made and in a request that
describes its own. `fit` and `guest` refuse unknown names in `hw:` and `hw_` only; of the others
they read what they read.

A value may not be blank, and where it is yes or no it has to be spelled as one of the two: 1, t,
true, on, y, yes; 0, f, false, off, n, no. (`fit` and `guest` take every other word for no.)

What a guest can see is in its definition, and stays in it wherever the guest goes. Each host says
by traits what it can give (`COMPUTE_FIRMWARE_UEFI`, `COMPUTE_STORAGE_BUS_SCSI`, …); one that lacks
a trait is not chosen, and `explain` says which. Only what flavor and image say together is held
against each other, and only then; what either says alone must be a value that some guest can have.

Conditions (`aggregate_instance_extra_specs:NAME`, `capabilities:NAME`)
are a plain value, which has to be equal, or an operator and what to compare with:

| operator | holds where the value is |
|---|---|
| `==` `!=` `>=` `<=` | such a number; `=` means at least |
| `s==` `s!=` `s>=` `s<=` `s>` `s<` | such a text |
| `<or> A <or> B` | one of these |
| `<in> A` | a text with this part |
| `<all-in> A B` | a text with all of these words as parts |

Metadata of an aggregate may list several values by commas: one of them has to meet the condition,
and none may break `!=` and `s!=`. A host that says nothing meets no condition.
"""


def messages_page() -> str:
    """Return the page of every public message and its fields, as Markdown."""
    schemas = components([*PUBLIC.values(), *CATALOGUE.values()], "#/{model}")
    own = {kind.__name__ for kind in PUBLIC.values()}
    parts = [
        _INTRO,
        _common_fields(schemas),
        "## Requests\n",
        *(_message(kind, schemas) for kind in REQUESTS.values()),
        "## Answers\n",
        _ANSWERED,
        *(_message(kind, schemas) for kind in ANSWERS.values()),
        "## Notifications\n",
        _NOTIFIED,
        *(_message(kind, schemas) for kind in NOTICES.values()),
        "## Objects in messages\n",
        *(
            _object(name, schema)
            for name, schema in schemas.items()
            if name not in own and "properties" in schema
        ),
    ]
    return "\n".join(parts)


def _common_fields(schemas: Mapping[str, dict[str, Any]]) -> str:
    any_request = next(iter(REQUESTS.values())).__name__
    lines = ["Every request has these fields beside its own:\n"]
    lines += _table(schemas[any_request], lambda name: name in _COMMON)
    return "\n".join([*lines, ""])


def _message(kind: type[Versioned], schemas: Mapping[str, dict[str, Any]]) -> str:
    hidden = _COMMON if issubclass(kind, Request) else frozenset()
    lines = [f"### {kind.task}\n", f"{_text(kind.__doc__)} (Version {kind.current_version}.)\n"]
    lines += _table(schemas[kind.__name__], lambda name: name not in hidden)
    if not hidden or kind is next(iter(REQUESTS.values())):
        lines += ["", "```json", json.dumps(EXAMPLES[kind.task], indent=2), "```"]
    return "\n".join([*lines, ""])


def _object(name: str, schema: Mapping[str, Any]) -> str:
    text = _text(str(schema.get("description", "")))
    return "\n".join([f"### {name}\n", f"{text}\n", *_table(schema, lambda _: True), ""])


def _table(schema: Mapping[str, Any], wanted: Callable[[str], bool]) -> Iterator[str]:
    yield "| field | value | default | meaning |"
    yield "|---|---|---|---|"
    for row in field_rows(schema):
        if wanted(row.name):
            cells = (f"`{row.name}`", row.value, row.default, row.meaning)
            yield f"| {' | '.join(cells)} |".replace("  ", " ")


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


def extra_specs_page() -> str:
    """Return the page of every extra spec and image property, and what becomes of each."""
    lines = [_SPECS, "| of | name | what becomes of it | why |", "|---|---|---|---|"]
    for where, name, known in rows():
        shown = f"`{name}`" if " " not in name else name
        lines.append(f"| {where} | {shown} | {known.effect} | {_but(known)} |")
    return "\n".join([*lines, ""])


def _but(known: KnownKey) -> str:
    if known.flag:
        return f"{known.why}; what means no is taken"
    return f"{known.why}; taken: {', '.join(known.idle)}" if known.idle else known.why


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "extra-specs": extra_specs_page,
    "messages": messages_page,
    "operations": operations_page,
}
"""Name of a page, `docs/NAME.md`, to what writes it."""
