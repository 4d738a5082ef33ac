"""The messages of an agent, written from values."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import structlog
from pydantic import ValidationError

from models.errors import Rejected
from models.hardware.accounting import without_use
from models.hardware.host_rules import refuse_excess, remarks_on, sound
from models.ids import HostName, is_uuid
from models.messages.base import Message
from models.messages.hardware.hardware_json import host_to_json
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REGISTRATION,
    REPLY,
    REPORTS,
    Domain,
    Heartbeat,
    HostRegistration,
    InventoryReport,
    LongCall,
    Note,
    Obeyed,
    OutgoingMessage,
    Progress,
    Reply,
    Reservation,
    answer_to,
    shown_arguments,
)
from models.messages.json_safety import shown_name
from workers.hypervisor.ports import GuestDomain, Hypervisor
from workers.journal.entries import Started, token_key


class Sender:
    """The sender of reports: the host and which life of its agent, whose reports it numbers.

    `replaces` is the life in whose place this one registers, where the conductor has asked for it;
    `obeys` the database that it obeys.
    """

    def __init__(self, host: HostName, boot_id: str) -> None:
        self.host = host
        self.boot_id = boot_id
        self.replaces: str | None = None
        self.obeys: Obeyed | None = None
        self._numbers = count(1)

    def next_number(self) -> int:
        """Return the number of one more report; newer ones have higher ones."""
        return next(self._numbers)


@dataclass(frozen=True, slots=True)
class Guests:
    """The guests of a host as reported, and those whose accounting is wrong."""

    domains: tuple[Domain, ...]
    degraded: tuple[str, ...]


def reply_message(reply: Reply) -> OutgoingMessage:
    """Return the message that carries a reply; the same reply always has the same message id."""
    name = f"{reply.sender}/{token_key(reply.token)}"
    return OutgoingMessage(
        queue=REPORTS,
        task=REPLY,
        body=reply.to_json(),
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        shown=shown_arguments(
            outcome=reply.outcome,
            step=reply.token.step,
            host=reply.sender,
            reason=(reply.error or {}).get("message"),
        ),
        **answer_to(reply.token),
    )


def progress_message(progress: Progress) -> OutgoingMessage:
    """Return the message that says how far a long action is."""
    return OutgoingMessage(
        queue=REPORTS,
        task=PROGRESS,
        body=progress.to_json(),
        shown=shown_arguments(
            percent=progress.percent, step=progress.token.step, host=progress.sender
        ),
        **answer_to(progress.token),
    )


def registration_message(
    sender: Sender,
    started: Started,
    hypervisor: Hypervisor,
    reserved: Reservation,
    guests: Guests,
) -> OutgoingMessage:
    """Return the message that registers a host: its agent has started, and on what hardware."""
    hardware = hypervisor.hardware()
    host_registration = HostRegistration(
        host=sender.host,
        boot_id=sender.boot_id,
        sequence=sender.next_number(),
        boot=started.boot,
        worker_id=started.worker_id,
        machine_id=hypervisor.machine_id,
        machine_boot=machine_boot(),
        replaces=sender.replaces,
        notes=_notes(started, guests),
        hypervisor=hypervisor.name,
        hardware=host_to_json(without_use(hardware.topology)),
        disk_gb=hardware.disk_gb,
        reserved=reserved,
        traits=hardware.traits,
        domains=guests.domains,
        accounting_degraded=guests.degraded,
        obeys=sender.obeys,
    )
    return _report(
        REGISTRATION,
        host_registration,
        shown_arguments(host=sender.host, guests=len(guests.domains)),
    )


def heartbeat_message(
    sender: Sender, heard_at: float, running: tuple[LongCall, ...], hangs: bool
) -> OutgoingMessage:
    """Return the heartbeat: the agent lives, the newest canary received, what runs for long."""
    beat = Heartbeat(
        host=sender.host,
        boot_id=sender.boot_id,
        sequence=sender.next_number(),
        heard_at=heard_at,
        running=running,
        hangs=hangs,
        obeys=sender.obeys,
    )
    return _report(HEARTBEAT, beat, shown_arguments(host=sender.host))


def inventory_message(sender: Sender, guests: Guests) -> OutgoingMessage:
    """Return the inventory report: every guest of a host."""
    inventory_report = InventoryReport(
        host=sender.host,
        boot_id=sender.boot_id,
        sequence=sender.next_number(),
        domains=guests.domains,
        accounting_degraded=guests.degraded,
    )
    return _report(
        INVENTORY_REPORT,
        inventory_report,
        shown_arguments(host=sender.host, guests=len(guests.domains)),
    )


def _notes(started: Started, guests: Guests) -> tuple[Note, ...]:
    """Say that a journal is new on a host with guests: what they have obeyed is not known here."""
    if started.boot > 1 or not guests.domains:
        return ()
    message = f"its journal is new, though it has {len(guests.domains)} guests: none was found"
    return (Note(code="journal_missing", message=message),)


@cache
def machine_boot() -> str:
    """Return what tells this running of the machine's kernel from every other, "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def guests_of(
    domains: Iterable[GuestDomain],
    fences: Mapping[str, int],
    degraded: Iterable[str],
) -> Guests:
    """Return domains as they are reported; one that nobody instructed us about has fence 0."""
    return Guests(
        tuple(_domain(domain, fences.get(domain.instance_id, 0)) for domain in domains),
        tuple(reported_name(name) for name in degraded),
    )


def refuse_incomplete(hypervisor: Hypervisor, reserved: Reservation) -> None:
    """Raise `Rejected` for a host that cannot be offered as it says; log what may not be meant.

    Codes: `hardware_incomplete` without CPUs or memory, which would make a host of size nothing
    known to the scheduler; `reserved_exceeds_host`; those of `host_rules.sound`.
    """
    hardware = hypervisor.hardware()
    cells = sound(hardware.topology).cells
    for what, amount in (
        ("CPUs", sum((cell.shared_cpus | cell.dedicated_cpus).bit_count() for cell in cells)),
        ("memory", sum(cell.memory_mib for cell in cells)),
    ):
        if amount == 0:
            message = f"the {hypervisor.name} hypervisor reports a host without {what}"
            raise Rejected("hardware_incomplete", message, key=what)
    cpus = sum((cell.shared_cpus | cell.dedicated_cpus).bit_count() for cell in cells)
    refuse_excess("vcpus", reserved.vcpus, cpus, "CPUs")
    refuse_excess("memory", reserved.memory_mib, sum(c.memory_mib for c in cells), "MiB")
    refuse_excess("disk", reserved.disk_gb, hardware.disk_gb, "GiB")
    for remark in remarks_on(hardware.topology):
        structlog.get_logger().warning("hardware", remark=remark)


def _domain(domain: GuestDomain, fence: int) -> Domain:
    """Return a guest as it is reported; one with values that no report takes says only its name."""
    name = reported_name(domain.instance_id)
    spec = domain.spec
    try:
        if spec is None:
            return Domain(instance_id=name, fence=fence, power_state=domain.power)
        return Domain(
            instance_id=name,
            fence=fence,
            power_state=domain.power,
            placement=spec.placement,
            memory_mib=spec.memory_mib,
            vcpus=spec.vcpus,
            disk_gb=spec.disk_gb,
        )
    except ValidationError:
        # One odd guest must not keep the host and all others from being reported.
        return Domain(instance_id=name, fence=fence, power_state="nostate")


def reported_name(name: str) -> str:
    """Return the name of a guest as reports carry it: that of a foreign one may be anything."""
    return name if is_uuid(name) else shown_name(name)


def _report(task: str, message: Message, shown: str) -> OutgoingMessage:
    return OutgoingMessage(queue=REPORTS, task=task, body=message.to_json(), shown=shown)
