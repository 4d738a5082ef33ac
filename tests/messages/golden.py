"""Golden files: the schema and an example of every version of every message, kept for ever.

    python -m tests.messages.golden --write

writes those of the current versions, never of older ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import Rejected
from models.messages.base import Versioned, parse
from models.messages.json_schemas import json_schema
from tests.messages.message_examples import ALL_EXAMPLES, ALL_KINDS

FOLDER = Path(__file__).parent / "golden"
NEW_VERSION = "raise its version (or delete the file, if it was never released)"
HOW = "raise its version, or run `python -m tests.messages.golden --write`: see the README"


@dataclass(frozen=True)
class Golden:
    """One version of one message, as it was when it was first sent."""

    message: str
    version: int
    schema: Mapping[str, Any]
    example: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.message}.v{self.version}.json"

    def text(self) -> str:
        """Return what its file holds."""
        held = {
            "message": self.message,
            "version": self.version,
            "example": self.example,
            "schema": self.schema,
        }
        return json.dumps(held, indent=1, sort_keys=True) + "\n"


def read_all() -> Iterator[Golden]:
    """Return every golden file there is, older versions too."""
    for path in sorted(FOLDER.glob("*.json")):
        yield Golden(**json.loads(path.read_text()))


def current(kind: type[Versioned]) -> Golden:
    """Return the golden file that the code of today would write."""
    name = kind.task
    return Golden(name, kind.current_version, json_schema(kind), ALL_EXAMPLES[name])


def write() -> list[str]:
    """Write the golden files of the current versions; return what was not written, and why."""
    refused = []
    for kind in ALL_KINDS.values():
        golden = current(kind)
        why = _needs_a_version(golden, kind) if golden.path.exists() else None
        if why is None:
            golden.path.write_text(golden.text())
        else:
            refused.append(f"{golden.path.name}: {why}: {NEW_VERSION}")
    return refused


def _needs_a_version(golden: Golden, kind: type[Versioned]) -> str | None:
    """Return what of a change the other side would notice, if it would."""
    before = Golden(**json.loads(golden.path.read_text()))
    changed = fields(before.schema) ^ fields(golden.schema)
    if changed:
        return f"{', '.join(sorted(changed))} came or went"
    try:
        parse(kind, before.example)
    except Rejected as error:
        return f"its example is no longer read, {error}"
    return None


def fields(schema: Mapping[str, Any], owner: str = "") -> set[str]:
    """Return the names of all fields of a schema, those of the objects in it by their class."""
    own = {f"{owner}{name}" for name in schema.get("properties", ())}
    inner = [fields(part, f"{name}.") for name, part in schema.get("$defs", {}).items()]
    return own.union(*inner)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.messages.golden --write")
    FOLDER.mkdir(exist_ok=True)
    sys.exit("\n".join(write()) or 0)
