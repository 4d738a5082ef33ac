"""Carries out one instruction, and makes of whatever comes of it the reply that is owed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog
from tenacity import Retrying

from models.errors import Broken, ConductorError, HostRefused
from models.ids import HostName
from models.messages.internal import Instruction, Reply
from workers.actions.action_context import Work
from workers.actions.action_registry import perform
from workers.hypervisor.fenced_hypervisor import AgentDead, FencedHypervisor
from workers.hypervisor.ports import OnProgress
from workers.tracker import Tracker


@dataclass(frozen=True, slots=True)
class InstructionExecution:
    """What the instructions of one host are carried out with; `retrying` is made anew for each."""

    host: HostName
    hypervisor: FencedHypervisor
    tracker: Tracker
    clock: Callable[[], float]
    retrying: Callable[[], Retrying]

    def execute(self, instruction: Instruction, resumed: bool, on_progress: OnProgress) -> Reply:
        """Carry out an instruction and return its reply; never raises.

        `resumed` says that it may have been begun before a restart: a refusal is then no proof
        that nothing was changed.
        """
        work = Work(instruction, self.hypervisor, self.tracker, self.clock(), on_progress)
        retrying = self.retrying()
        try:
            result = retrying(perform, work)
        except HostRefused as error:
            # A refusal proves that this attempt changed nothing, not that an earlier one did.
            sure = retrying.statistics["attempt_number"] == 1 and not resumed
            return self.error_reply(instruction, "refused" if sure else "failed", error)
        except ConductorError as error:
            return self.error_reply(instruction, "failed", error)
        except AgentDead:
            return self.stale_reply(instruction)
        except Exception as error:  # noqa: BLE001 - a defect in one action still owes its reply
            return self.error_reply(instruction, "failed", self._defect(instruction, error))
        return Reply(token=instruction.token, sender=self.host, outcome="done", result=result)

    def let_go_of_images(self, unused_s: float) -> None:
        """Remove cached images that no guest has had for so long; never raises."""
        log = structlog.get_logger()
        try:
            gone = self.hypervisor.age_out(self.clock(), unused_s)
        except Exception as error:
            log.warning("images_not_aged_out", host=self.host, exc_info=error)
            return
        if gone:
            log.info("images_aged_out", host=self.host, images=gone)

    def stale_reply(self, instruction: Instruction) -> Reply:
        """Return the reply to an instruction that a newer fence has overtaken."""
        return Reply(token=instruction.token, sender=self.host, outcome="stale")

    def error_reply(
        self, instruction: Instruction, outcome: Literal["refused", "failed"], error: ConductorError
    ) -> Reply:
        """Return the reply to an instruction that was not carried out."""
        return Reply(
            token=instruction.token, sender=self.host, outcome=outcome, error=error.to_json()
        )

    def _defect(self, instruction: Instruction, error: Exception) -> Broken:
        """Log what was raised and return an error without it: it may name paths and keys."""
        raised = type(error).__name__
        structlog.get_logger().error(
            "action_defect",
            host=self.host,
            verb=instruction.verb,
            instance_id=instruction.instance_id,
            operation_id=instruction.token.operation_id,
            exc_info=error,
        )
        message = f"{instruction.verb} met a defect ({raised}): the log of {self.host} has it"
        return Broken("defect", message, host=self.host, verb=instruction.verb, raised=raised)
