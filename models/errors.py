"""The errors, sorted by what the caller does next. Codes are stable; nobody matches the text."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self


class ConductorError(Exception):
    """Base of all our errors: a stable `code`, a sentence, and data (JSON values)."""

    retry: ClassVar[str] = "never"

    def __init__(self, code: str, message: str, key: str | None = None, **data: Any) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.key = key
        self.data = data

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.key, self.data))

    def to_json(self) -> dict[str, Any]:
        """Return `{kind, code, message, key?, data?}`, the shape every fault is stored in."""
        fault: dict[str, Any] = {
            "kind": type(self).__name__,
            "code": self.code,
            "message": self.message,
        }
        if self.key is not None:
            fault["key"] = self.key
        if self.data:
            fault["data"] = self.data
        return fault

    @classmethod
    def of(cls, code: str, message: str, **data: Any) -> Self:
        """Return an error of this kind; for callers that hold the class in a variable."""
        return cls(code, message, **data)


class Rejected(ConductorError):
    """The caller's fault: never retry, change the request."""


class NoValidHost(ConductorError):
    """Well-formed, but no host can take it now; `data["reasons"]` counts why."""


class Conflict(ConductorError):
    """Somebody moved first: read again, retry now."""

    retry = "now"


class HostRefused(ConductorError):
    """This host will not do it and holds nothing of it: go back, try the next."""

    retry = "elsewhere"


class Unreachable(ConductorError):
    """The outcome is unknown: ask again with the same token."""

    retry = "same"


class Broken(ConductorError):
    """An invariant failed: stop and call a person."""


_OF_THE_STORE: Final = frozenset(
    {
        "database_unreachable",
        "database_busy",
        "database_damaged",
        "database_schema",
        "lock_timeout",
        "statement_timeout",
        "transaction_timeout",
    }
)


def is_of_the_store(error: ConductorError) -> bool:
    """Say whether an error speaks of the database alone: run the whole transaction again."""
    if isinstance(error, Conflict):
        return error.code != "exists"
    return isinstance(error, Unreachable) and error.code in _OF_THE_STORE


_KINDS: dict[str, type[ConductorError]] = {
    kind.__name__: kind
    for kind in (Rejected, NoValidHost, Conflict, HostRefused, Unreachable, Broken)
}


def error_from_json(fault: dict[str, Any]) -> ConductorError:
    """Return the error that `to_json` described; an unknown kind becomes `Broken`."""
    kind = _KINDS.get(fault.get("kind", ""), Broken)
    data = fault.get("data", {})
    return kind(fault.get("code", "unknown"), fault.get("message", ""), fault.get("key"), **data)


def _rebuild(
    kind: type[ConductorError], code: str, message: str, key: str | None, data: dict[str, Any]
) -> ConductorError:
    return kind(code, message, key, **data)


def defect_text(what: str, error: BaseException) -> str:
    """Return the sentence for a defect of ours: what was met, and never the text of the exception.

    That may hold whatever was at hand, secrets too; the log, which is the operator's, has it.
    """
    return f"{what} ({type(error).__name__}): the log of the process has the error"
