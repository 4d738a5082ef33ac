"""What a person wants to know of a message's fields, read from its JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from models.json_types import Json

_BOUNDS: Final = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field: its name, the kind of value, and `required` or its default as text."""

    name: str
    value: str
    default: str
    meaning: str

    def to_json(self) -> dict[str, str]:
        """Return the row as an object."""
        return {
            "name": self.name,
            "value": self.value,
            "default": self.default,
            "meaning": self.meaning,
        }


def field_rows(schema: Json) -> tuple[FieldRow, ...]:
    """Return the fields of an object's schema in their order."""
    required = schema.get("required", ())
    return tuple(
        FieldRow(name, value_of(field), _default(name in required, field), _meaning(field))
        for name, field in schema.get("properties", {}).items()
    )


def value_of(schema: Json) -> str:
    """Return in a few words which values a schema takes; null, as good as absent, is left out."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "title" in schema:
        return str(schema["title"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(item)}`" for item in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(value_of(item) for item in schema["anyOf"] if item.get("type") != "null")
    if schema.get("format") == "uuid":
        return "UUID"
    kind = str(schema.get("type", "any value"))
    if kind == "array":
        return f"list of {value_of(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {value_of(schema['additionalProperties'])}"
    bounds = [f"{sign} {schema[word]:,}" for word, sign in _BOUNDS.items() if word in schema]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _default(required: bool, field: Json) -> str:
    if required:
        return "required"
    default = field.get("default")
    return "" if default in _NOTHING else f"`{json.dumps(default)}`"


def _meaning(field: Json) -> str:
    return str(field.get("description", ""))
