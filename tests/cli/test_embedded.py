"""What the system in one process does when one of its hosts is killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_system import Embedded
from conductor.settings import Settings
from conductor.store.memory.memory_store import MemoryStore
from models.messages.examples import INSTANCE_ID, OPERATION_ID
from models.messages.hardware.hardware_json import host_from_json
from models.messages.internal import Instruction, OutgoingMessage, Token
from tests.operations.world import small_host
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor

TOKEN = Token(operation_id=OPERATION_ID, step="s", attempt=1, sequence=1, fence=1)


class Slow(dict[str, Any]):
    """A body that takes its time to be read, so that its reader can be killed meanwhile."""

    taken = threading.Event()

    def get(self, key: str, default: Any = None, /) -> Any:
        self.taken.set()
        time.sleep(0.2)
        return super().get(key, default)


def test_a_message_that_a_killed_agent_held_is_lost_with_it_and_no_error(tmp_path: Path) -> None:
    hardware = Hardware(host_from_json(small_host()))
    host = ComputeHost("host-0", SimulatedHypervisor(hardware))
    system = Embedded(Settings(state_dir=tmp_path), [host], MemoryStore())
    instruction = Instruction(token=TOKEN, instance_id=INSTANCE_ID, verb="power_on")
    with capture_logs() as lines:
        system.restart("host-0")
        system.bus.send(
            [OutgoingMessage("compute_host-0", "compute.power_on", Slow(instruction.to_json()))]
        )
        assert Slow.taken.wait(5)
        system.crash("host-0")
    assert "a message is lost with its agent" in [line["event"] for line in lines]
    assert not [line for line in lines if line["log_level"] in ("error", "critical")]
