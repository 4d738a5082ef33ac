"""What the tests of workers are made of: a small host, instructions for it, and a mailbox."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from models.errors import Unreachable
from models.hardware import HostCell, HostTopology, PagePool, mask_of
from models.ids import HostName, InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.internal import REPLY, Instruction, OutgoingMessage, Reply, Token
from tests.limits import Limit
from workers.agent import Agent
from workers.hypervisor.fault_injection import InjectedFaults, always_done
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.hypervisor.simulated_disks import disk_image
from workers.journal.memory_journal import MemoryJournal
from workers.journal.ports import Journal
from workers.keyed_executor import in_a_thread
from workers.settings import WorkerSettings

HOST = HostName("host-1")
VM = InstanceId("6a1e0a53-0000-4000-8000-000000000001")
OTHER_VM = InstanceId("6a1e0a53-0000-4000-8000-000000000002")
PROMPT = WorkerSettings(retry_wait_s=0.0)


def cell(number: int = 0, cpus: range = range(4), memory_mib: int = 4096) -> HostCell:
    """A NUMA cell of two-thread cores, in the old style, half of its memory in 2 MiB pages."""
    mask = mask_of(cpus)
    pairs = tuple(mask_of((cpu, cpu + 1)) for cpu in cpus[::2])
    huge = memory_mib // 2 // 2
    pools = (PagePool(4, memory_mib // 2 * 256), PagePool(2048, huge))
    return HostCell(number, 0, mask, mask, memory_mib, pairs, pools)


HARDWARE = Hardware(HostTopology((cell(0), cell(1, range(4, 8)))), disk_gb=100)


def placement(
    pins: dict[int, int] | None = None, host_cell: int = 0, memory: int = 512, **more: Any
) -> dict[str, Any]:
    """A placement of one guest cell; without pins its single vCPU is shared."""
    one = {
        "id": 0,
        "host_cell": host_cell,
        "cpuset": [] if pins else [0],
        "pcpuset": sorted(pins or {}),
        "memory": memory,
        "pagesize": None,
        "cpu_pinning": {str(vcpu): cpu for vcpu, cpu in (pins or {}).items()},
        "cpuset_reserved": [],
    }
    return {"cells": [one | more]}


def spec(placed: dict[str, Any] | None = None, **more: Any) -> GuestDefinition:
    """What to spawn: one vCPU, 512 MiB, 1 GiB of disk unless the test says otherwise."""
    values: dict[str, Any] = {
        "name": "vm",
        "vcpus": 1,
        "memory_mib": 512,
        "disk_gb": 1,
        "placement": placed,
    }
    return GuestDefinition(**(values | more))


def operation_of(instance_id: str) -> str:
    """The one operation of an instance."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, instance_id))


def instruction(
    verb: str,
    fence: int = 1,
    instance_id: str = VM,
    args: dict[str, Any] | None = None,
    expires_at: float | None = None,
) -> Instruction:
    """An instruction; the fence also makes its token different from others."""
    operation = operation_of(instance_id)
    token = Token(operation_id=operation, step=verb, attempt=1, sequence=fence, fence=fence)
    if args is None:
        args = default_args(verb)
    return Instruction(
        token=token,
        instance_id=instance_id,
        verb=verb,
        args=args,
        expires_at=expires_at,
    )


def default_args(verb: str) -> dict[str, Any]:
    """The arguments of a verb when a test does not care."""
    if verb in {"spawn", "reshape", "rebuild", "check_target"}:
        return spec().to_json()
    if verb == "copy":
        return {"target": "host-2"}
    if verb == "take_disk":
        return {"disk": disk_image(InstanceId("other"), "data").to_json()}
    return {"images": [{"id": "img"}]} if verb == "cache_images" else {}


@dataclass
class Mailbox:
    """Takes messages as a broker does; while `down` it takes none, `before_post` may delay it."""

    down: bool = False
    messages: list[OutgoingMessage] = field(default_factory=list)
    posts: int = 0
    before_post: Callable[[], object] = field(default=lambda: None)

    def __call__(self, messages: Sequence[OutgoingMessage]) -> None:
        self.before_post()
        self.posts += 1
        if self.down:
            raise Unreachable("carrier_down", "the broker cannot be reached")
        self.messages.extend(messages)

    def replies(self) -> list[Reply]:
        """The replies that arrived, in order."""
        return [
            Reply.model_validate(message.body) for message in self.messages if message.task == REPLY
        ]

    def outcomes(self) -> list[str]:
        """How those replies ended."""
        return [reply.outcome for reply in self.replies()]

    def codes(self) -> list[str | None]:
        """The codes of the errors in those replies, None where there is none."""
        return [reply.error["code"] if reply.error else None for reply in self.replies()]

    def bodies(self, task: str) -> list[dict[str, Any]]:
        """The bodies of the messages of one task."""
        return [dict(message.body) for message in self.messages if message.task == task]


@dataclass
class Clock:
    """A clock that moves when it is set."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A host with its hypervisor and journal, on which agents come and go."""

    injected_faults: InjectedFaults = always_done
    journal: Journal = field(default_factory=MemoryJournal)
    settings: WorkerSettings = PROMPT
    executor: Executor | None = None
    hardware: Hardware = HARDWARE
    mailbox: Mailbox = field(default_factory=Mailbox)
    clock: Clock = field(default_factory=Clock)
    spare: Callable[[Callable[[], None]], object] = in_a_thread

    def __post_init__(self) -> None:
        self.hypervisor = SimulatedHypervisor(self.hardware, injected_faults=self.injected_faults)

    def agent(self, started: bool = True) -> Agent:
        """One more agent of the host."""
        agent = Agent(
            HOST,
            self.hypervisor,
            self.journal,
            self.mailbox,
            self.settings,
            self.clock,
            self.executor,
            spare=self.spare,
        )
        if started:
            agent.start()
        return agent

    def effects(self, verb: str, instance_id: str = VM) -> int:
        """How often a verb changed something about an instance."""
        return self.hypervisor.effects(instance_id, verb)


def until(true: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    """Whether something another thread does comes true in time."""
    limit = Limit(timeout_s)
    while not true():
        if limit.over:
            return False
        time.sleep(0.002)
    return True
