"""What our own processes send each other: instructions to hosts, and their reports."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from models.ids import HOST_PATTERN, HOST_RULE, LONGEST_HOST, compute_queue, is_host_name
from models.messages.base import Message, Versioned
from models.messages.catalogue import Count
from models.messages.name_rules import Words

CONDUCTOR, SCHEDULER, REPORTS, DEAD_LETTERS = "conductor", "scheduler", "reports", "dead_letters"

SELECT_HOSTS = "scheduler.select_hosts"
PROGRESS = "reports.progress"
REPLY, REGISTRATION, HEARTBEAT, INVENTORY_REPORT = (
    "reports.reply",
    "reports.hello",
    "reports.heartbeat",
    "reports.manifest",
)
REFUSED = "reports.refused"
COMPUTE = "compute."

Counter = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""What only grows: as much of it as a database holds."""

Moment = Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)]
"""Seconds since 1970 by some clock."""
REGISTRATION_VERDICT = "registration"
"""The verb of the answer to a registration; it is about no instance."""
TRUST_DATABASE = "trust_database"
"""The verb by which an operator has a worker obey another database; it is about no instance."""
CANARY = COMPUTE + "canary"
MOST_REASON, MOST_REFUSED_BODY = 1_000, 16_384
"""Characters of a refusal's reason, and of what it shows of the message."""
MOST_CALLS = 20
"""So many long calls are named in a heartbeat, the longest first."""
ECHO = "/conductors"
"""What a conductor calls itself in the heartbeat by which it hears whether it is deaf."""
_SHOWN_AT_MOST = 200


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message on its way: queue, task name, JSON body, and the ids that link it to its operation.

    `id` is deterministic for asks (same token, same id), so that a message sent twice is
    recognised wherever ids are; `shown` is what Flower prints instead of the arguments.
    """

    queue: str
    task: str
    body: Mapping[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    root_id: str | None = None
    parent_id: str | None = None
    shown: str = ""


class Token(Message):
    """Which attempt of which step a message belongs to.

    `sequence` grows with every ask of the operation: only the newest is answered.
    `fence` grows with every instruction for the instance, across operations: a worker
    refuses what is older than the newest it has seen. `root_id` is the request's operation
    where that is another one; it only links what is shown.
    """

    operation_id: str
    step: str
    attempt: Counter
    sequence: Counter
    fence: Counter = 0
    root_id: str | None = None

    @property
    def message_id(self) -> str:
        """The id of the message that carries the ask: same token, same id."""
        name = f"{self.operation_id}/{self.step}/{self.sequence}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


class Instruction(Versioned):
    """Work for one host. Verbs are the modules of `workers/actions`; its task name ends in one.

    `host` and `worker_id` are whom it is for: queues can be shared by mistake. `database` is the id
    of the database that it comes from: a worker obeys one.
    """

    task: ClassVar[str] = COMPUTE + "instruction"

    token: Token
    instance_id: str
    verb: str
    args: dict[str, Any] = {}
    expires_at: Moment | None = None
    host: str | None = None
    worker_id: str | None = None
    database: str | None = None


class Obeyed(Message):
    """The database that a worker obeys, and the newest generation of it that it knows.

    `outdated`: it has seen an older generation since, as of a copy that was restored. Then it obeys
    nothing until an operator decides.
    """

    database: Words
    generation: Counter
    outdated: bool = False


class TrustedDatabase(Message):
    """An operator trusts this database: `args` of an instruction with that verb.

    It counts for a worker that obeys the database `instead_of`, and for no other: the message may
    be old.
    """

    database: Words
    generation: Counter
    instead_of: Words


class RegistrationAnswer(Message):
    """What became of a worker's registration: `args` of an instruction with that verb.

    `boot_id` is the life that it is for; others that read the queue leave it alone. `again` asks it
    to register (anew), in the place of the life `replaces`.
    """

    boot_id: str
    outcome: Literal["again", "refused"]
    replaces: str | None = None
    reason: str | None = None


def _reporting(name: str) -> str:
    # A conductor hears itself under a name that no host can have.
    if not is_host_name(name) and name != ECHO:
        raise ValueError(f"should be {HOST_RULE}")
    return name


Reporting = Annotated[
    str,
    AfterValidator(_reporting),
    Field(json_schema_extra={"maxLength": LONGEST_HOST, "pattern": f"{HOST_PATTERN}|^{ECHO}$"}),
]
"""The name of a host that reports, or of the conductors' own echo."""


class Reply(Versioned):
    """The answer to an ask of an operation, of the scheduler or of a host.

    `done` carries `result`; `refused` and `failed` carry `error` (`ConductorError.to_json`);
    `stale` means that the host has seen a newer token and did nothing.
    """

    task: ClassVar[str] = REPLY

    token: Token
    sender: Reporting
    outcome: Literal["done", "refused", "failed", "stale"]
    result: dict[str, Any] = {}
    error: dict[str, Any] | None = None


class Progress(Versioned):
    """How far a long action is; it changes nothing but what people see."""

    task: ClassVar[str] = PROGRESS

    token: Token
    sender: Reporting
    percent: Annotated[int, Field(ge=0, le=100)]


class Refusal(Versioned):
    """A host or the scheduler has refused a message of its queue for good, and did nothing of it.

    `refused_task` and the ids are those of that message as far as they could be read, `body` its
    beginning without secrets.
    """

    task: ClassVar[str] = REFUSED

    sender: Reporting
    reason: Annotated[str, Field(max_length=MOST_REASON)]
    refused_task: Annotated[str, Field(max_length=200)] = ""
    message_id: Annotated[str, Field(max_length=200)] | None = None
    root_id: Annotated[str, Field(max_length=200)] | None = None
    parent_id: Annotated[str, Field(max_length=200)] | None = None
    body: Annotated[str, Field(max_length=MOST_REFUSED_BODY)] = ""


class Domain(Message):
    """One guest as the host sees it: part of an inventory report."""

    instance_id: str
    fence: Counter
    power_state: Literal["running", "paused", "suspended", "shutdown", "crashed", "nostate"]
    placement: dict[str, Any] | None = None
    memory_mib: Count = 0
    vcpus: Count = 0
    disk_gb: Count = 0


class Reservation(Message):
    """What the host keeps for itself."""

    memory_mib: Count = 0
    disk_gb: Count = 0
    vcpus: Count = 0


class Note(Message):
    """What a worker has to say of itself to whoever looks at its host."""

    code: Words
    message: Words


class HostRegistration(Versioned):
    """A worker has started: its hardware (`host` as `fit` takes it, without use) and its guests.

    `worker_id` is made once for a state directory, `machine_id` is the hypervisor's, `machine_boot`
    the running kernel's. `boot` counts the starts on that state directory, `boot_id` names this
    one, `sequence` counts its reports, whatever clocks say. `replaces` is the life in whose
    place it registers. `obeys` is the database that it obeys, absent before its first.
    """

    task: ClassVar[str] = REGISTRATION

    host: Reporting
    boot_id: Words
    sequence: Counter
    boot: Counter
    worker_id: Words
    machine_id: Words
    machine_boot: Words = ""
    replaces: Words | None = None
    notes: tuple[Note, ...] = ()
    hypervisor: Words
    hardware: dict[str, Any]
    disk_gb: Count
    reserved: Reservation = Reservation()
    traits: tuple[Words, ...] = ()
    domains: tuple[Domain, ...] = ()
    accounting_degraded: tuple[str, ...] = ()
    obeys: Obeyed | None = None


class LongCall(Message):
    """A call that has run for long without a sign of life: part of a heartbeat."""

    verb: Words
    for_s: Moment
    instance_id: Words | None = None
    operation_id: Words | None = None


class Canary(Versioned):
    """Proves that a host reads its queue: its next heartbeat says that this one was heard.

    It says which database its sender has, and of which generation: see `Obeyed`.
    """

    task: ClassVar[str] = CANARY

    sent_at: Moment
    database: Words | None = None
    generation: Counter = 0


class Heartbeat(Versioned):
    """A worker lives; what it has heard through its queue, and what runs there for long.

    `sequence` counts the reports of this life of it. `heard_at` is the `sent_at` of the newest
    canary that came through its queue, 0 for none yet; absent of a worker that knows of none. With
    `hangs` its hypervisor answers so little that it can begin no more work.
    """

    task: ClassVar[str] = HEARTBEAT

    host: Reporting
    boot_id: Words
    sequence: Counter
    heard_at: Moment | None = None
    running: Annotated[tuple[LongCall, ...], Field(max_length=MOST_CALLS)] = ()
    hangs: bool = False
    obeys: Obeyed | None = None


class InventoryReport(Versioned):
    """The periodic audit of a host: every guest it has; `sequence` counts its worker's reports."""

    task: ClassVar[str] = INVENTORY_REPORT

    host: Reporting
    boot_id: Words
    sequence: Counter
    domains: tuple[Domain, ...] = ()
    accounting_degraded: tuple[str, ...] = ()


class HostRequest(Message):
    """One instance that needs a host; part of `SelectHosts`.

    With `migration_id` the target of that migration is sought, with its flavor; the claim is
    then written into the migration and the instance stays where it is. `force` skips every rule
    about hosts but what is physical: there has to be room.
    """

    instance_id: str
    operation_id: str
    migration_id: str | None = None
    force: bool = False


class SelectHosts(Versioned):
    """Ask the scheduler: choose and claim hosts for these instances, all or none.

    `alternates`, of an earlier selection, are tried first; `ignored` were tried and refused.
    """

    task: ClassVar[str] = SELECT_HOSTS

    token: Token
    host_requests: tuple[HostRequest, ...]
    alternates: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class Selected(Message):
    """Where one instance was claimed, and where it could go instead."""

    instance_id: str
    host: str
    alternates: tuple[str, ...] = ()


def instruction_message(host: str, instruction: Instruction, root_id: str) -> OutgoingMessage:
    """Return the message that carries an instruction to its host; same token, same id."""
    token = instruction.token
    return OutgoingMessage(
        queue=compute_queue(host),
        task=COMPUTE + instruction.verb,
        body=instruction.to_json(),
        id=token.message_id,
        root_id=root_id,
        parent_id=token.operation_id,
        shown=shown_arguments(
            instance_id=instruction.instance_id, host=host, step=token.step, attempt=token.attempt
        ),
    )


def answer_to(token: Token) -> dict[str, str]:
    """Return the ids that link a message to the ask that it answers, and to the request behind."""
    return {"root_id": token.root_id or token.operation_id, "parent_id": token.message_id}


def shown_arguments(**fields: Any) -> str:
    """Return the text that Flower shows instead of a message's arguments, absent ones left out.

    Written as Python writes a dictionary, which is what Flower can search by field; long text
    is cut after 200 characters.
    """
    present = {name: value for name, value in fields.items() if value not in (None, "")}
    return repr({n: v[:_SHOWN_AT_MOST] if isinstance(v, str) else v for n, v in present.items()})
