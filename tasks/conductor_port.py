"""The conductor, as the tasks of its process call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from conductor.store import DeadLetter
from models.errors import Rejected


class Conductor(Protocol):
    """What the tasks call. Each may be called twice with the same message, from any thread."""

    def handle_request(
        self,
        task: str,
        operation_id: str,
        body: Mapping[str, Any],
        reply_to: str | None = None,
        fault: Rejected | None = None,
    ) -> None:
        """Accept a request; what is wrong with it is answered, not raised.

        With a `fault` it is refused for that: its message could not be taken.
        """

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        """Take a reply, say whether it was awaited; raise `Rejected` if malformed."""

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        """Take in a host that has started; raise `Rejected` when it is malformed."""

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives; raise `Rejected` when it is malformed."""

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare a host's guests with what is known; raise `Rejected` when it is malformed."""

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        """Note how far a copy is, say whether its host was asked; raise `Rejected` if malformed."""

    def handle_refusal(self, body: Mapping[str, Any]) -> None:
        """Keep a message that its receiver refused; raise `Rejected` when it is malformed."""

    def handle_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a message that could not be handled; the same id again changes nothing."""
