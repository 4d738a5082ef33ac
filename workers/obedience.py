"""What a worker does about the database that its instructions come from: obeys it, or says no."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import structlog

from models.errors import HostRefused
from models.ids import HostName
from models.messages.base import parse
from models.messages.internal import Canary, Instruction, TrustedDatabase
from workers.agent_record import Record
from workers.journal.entries import Obeys
from workers.obeyed_database import (
    after_canary,
    after_decision,
    after_instruction,
    why_disobeyed,
)


@dataclass(frozen=True, slots=True)
class Obedience:
    """Keeps in the record which database is obeyed; what it raises is the journal's."""

    host: HostName
    record: Record

    def hear(self, canary: Canary) -> None:
        """Note the database and generation of a canary."""
        self._keep(after_canary(self.record.obeys, canary))

    def refusal(self, instruction: Instruction) -> HostRefused | None:
        """Return why an instruction is not obeyed (`database_distrusted`); None if it is."""
        self._keep(after_instruction(self.record.obeys, instruction.database))
        reason = why_disobeyed(self.record.obeys, instruction.database)
        if reason is None:
            return None
        structlog.get_logger().error("database_distrusted", host=self.host, reason=reason)
        message = f"{self.host} does not obey this database: {reason}; see `hosts trust-database`"
        return HostRefused("database_distrusted", message, host=self.host)

    def decided(self, instruction: Instruction) -> bool:
        """Obey what an operator trusts; return whether that changed anything."""
        if instruction.host not in (None, self.host):
            return False
        before = self.record.obeys
        self._keep(after_decision(before, parse(TrustedDatabase, instruction.args)))
        return self.record.obeys != before

    def _keep(self, obeys: Obeys | None) -> None:
        before = self.record.obeys
        if obeys is None or obeys == before:
            return
        self.record.obey(obeys)
        # A generation comes every minute; what an operator wants to know of is another database.
        if before is None or (before.database, before.outdated) != (obeys.database, obeys.outdated):
            log = structlog.get_logger()
            log.info("database_obeyed", host=self.host, **asdict(obeys))
