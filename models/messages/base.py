"""What every message has in common: frozen, strict, versioned, and errors that name the field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from models.errors import Rejected
from models.messages.json_safety import unkeepable
from models.messages.versions import CONVERTERS, Converters, to_current
from models.secrets import MASK, is_secret, shown

M = TypeVar("M", bound="Message")

_SAYS_NOTHING = ("constrained-", "function-after[", "dict[", "[key]")
_OF_THE_VALIDATOR = re.compile(
    r"^Value error, |^(Input|String|Tuple|List|Dictionary|Set|Frozenset) (?=should )"
    r"| after validation(, not \d+)?$"
)
_CODES = {
    "extra_forbidden": "field_unknown",
    "missing": "field_missing",
}


class Message(BaseModel):
    """A value that crosses a process boundary as JSON; unknown fields are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON values, without what nobody set."""
        return self.model_dump(mode="json", exclude_none=True)


class Versioned(Message):
    """A message that travels on its own, and so says of which version of its kind it is.

    `task` is its name. Whoever changes the fields raises `current_version` and the default of
    `version`, and adds a converter to `models.messages.versions`.
    """

    task: ClassVar[str]
    current_version: ClassVar[int] = 1

    version: Annotated[
        int, Field(ge=1, description="Version of the message; 1 where it is not given.")
    ] = 1


def parse(kind: type[M], body: Mapping[str, Any], converters: Converters = CONVERTERS) -> M:
    """Return `body` as a message of `kind`; raise `Rejected` naming field, value and rule.

    Older versions are converted; a newer one is refused as such (`version_unsupported`).
    Parsed through JSON text, since only there do strict types still take a list for a tuple.
    """
    if issubclass(kind, Versioned):
        body = to_current(kind.task, body, kind.current_version, converters)
        unfit = unkeepable(body)
        if unfit is not None:
            raise unfit
    try:
        return kind.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise rejected(error) from None
    except (TypeError, ValueError) as error:
        raise Rejected("not_json", f"the message is not JSON: {error}") from None


def rejected(error: ValidationError) -> Rejected:
    """Return the first complaint of a validation as one line: field, value and rule.

    The values of secrets are masked: what is refused is logged, kept and answered.
    """
    # Of a union's complaints the deepest is about the alternative that the sender meant.
    first = max(error.errors(include_url=False, include_context=False), key=_depth)
    field = ".".join(str(part) for part in first["loc"] if not _is_alternative(part)) or "message"
    code = _CODES.get(first["type"], "field_invalid")
    if code == "field_missing":
        return Rejected(code, f"{field} is missing", key=field)
    if code == "field_unknown":
        return Rejected(code, f"{field} is not a known field", key=field)
    value = _quoted(first)
    return Rejected(code, f"{field} is {value}: {_rule_of(first['msg'])}", key=field)


def _rule_of(complaint: str) -> str:
    """Return what a validator complains of as the rule alone, without its own types."""
    return _OF_THE_VALIDATOR.sub("", complaint)


def _quoted(complaint: ErrorDetails) -> str:
    if any(is_secret(str(part)) for part in complaint["loc"]):
        return MASK
    return shown(complaint["input"])


def _depth(complaint: ErrorDetails) -> int:
    return len(complaint["loc"])


def _is_alternative(part: int | str) -> bool:
    """Whether a part of a path names a type of a union, which says nothing to the sender.

    Nor does the mark that a complaint is about the key itself, which is the part before it.
    """
    return isinstance(part, str) and (part.endswith("Body") or part.startswith(_SAYS_NOTHING))
