"""Registration: a host that has started is taken in with what it has.

A host that returns with other hardware is taken in as it is now, with what its guests hold. Only
hardware that contradicts them is not: then the guests keep their places, no new one comes, and an
operator decides (`hosts enable` takes the new hardware in once no guest contradicts it). Other
amounts (memory, reserves, ratios, disk) are taken as they are, also where less is left than is in
use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from conductor.admission import Admitted, Verdict, admit, heard, registered
from conductor.hearing import begins_anew
from conductor.operations.waits import ON_HOST
from conductor.placement.changed_hardware import held_on, taken_in
from conductor.placement.providers import over_committed, provider_id_of, root_of
from conductor.placement.resources import Ratios, inventory_of
from conductor.reconciliation import reconcile
from conductor.store.ports import UnitOfWork
from conductor.store.records import Host, Inventory, Registration
from models.errors import Rejected
from models.hardware.accounting import without_use
from models.hardware.host_rules import remarks_on, sound
from models.hardware.topology import HostTopology
from models.messages.hardware import host_from_json
from models.messages.letters import Hello, Letter, Manifest

log = structlog.get_logger(__name__)


def greet(uow: UnitOfWork, hello: Hello, ratios: Ratios, down_after_s: float) -> Verdict:
    """Take in a host whose worker has started, if that worker may serve it; return whether.

    Everything it was asked and has not answered is sent again: its memory and its messages may
    be gone, its journal tells it what it has done already.
    """
    verdict = admit(uow, hello, down_after_s)
    before = uow.registrations.get(hello.host)
    if not isinstance(verdict, Admitted) or not heard(
        uow, hello.host, hello.boot_id, hello.sequence, lists=True
    ):
        return verdict
    topology = _described(hello)
    inventory = inventory_of(topology, hello.disk_gb, hello.reserved, ratios)
    known = uow.hosts.lock(hello.host)
    if known is None:
        _refuse_taken_name(uow, hello.host)
        uow.hosts.add(_new_host(uow, hello, topology, inventory))
    else:
        returned = _returned(uow, known, hello, topology, inventory)
        _warn_of_too_little(known, returned)
        uow.hosts.save(returned)
    registered(uow, hello)
    reconcile(
        uow,
        Manifest(
            host=hello.host,
            boot_id=hello.boot_id,
            sequence=hello.sequence,
            domains=hello.domains,
            accounting_degraded=hello.accounting_degraded,
        ),
    )
    begins_anew(uow, hello.host)
    _ask_again(uow, hello, before)
    return verdict


def _ask_again(uow: UnitOfWork, hello: Hello, before: Registration | None) -> None:
    """Send what a host was asked and has not answered; it is for the worker that is there now."""
    for record in uow.operations.where(waiting_on=ON_HOST + hello.host, ended_at=None):
        if record.waiting is None:
            continue
        letter = record.waiting["letter"]
        if before is not None and before.worker_id != hello.worker_id:
            letter = {**letter, "body": {**letter["body"], "worker_id": hello.worker_id}}
            uow.operations.save(replace(record, waiting={**record.waiting, "letter": letter}))
        uow.post(Letter(**letter))


def _described(hello: Hello) -> HostTopology:
    """Return the hardware that a host tells of, without use; say what may not be meant of it."""
    topology = without_use(sound(host_from_json(hello.hardware)))
    for remark in remarks_on(topology):
        log.warning("host taken in", host=hello.host, remark=remark)
    return topology


def _refuse_taken_name(uow: UnitOfWork, name: str) -> None:
    """Refuse a host that is called as a resource provider is: what is held of one is by name."""
    if uow.providers.count(name=name):
        message = f"host is {name}: a resource provider has that name"
        raise Rejected("provider_name_taken", message, key="host")


def _new_host(
    uow: UnitOfWork, hello: Hello, topology: HostTopology, inventory: Mapping[str, Inventory]
) -> Host:
    return Host(
        name=hello.host,
        topology=topology,
        inventory=inventory,
        hypervisor=hello.hypervisor,
        traits=hello.traits,
        own_traits=hello.traits,
        boot_id=hello.boot_id,
        created_at=uow.now,
        updated_at=uow.now,
        provider_id=provider_id_of(hello.host),
    )


def _returned(
    uow: UnitOfWork,
    known: Host,
    hello: Hello,
    topology: HostTopology,
    inventory: Mapping[str, Inventory],
) -> Host:
    """Return a known host after a restart: with its use, and with doubt if it has changed.

    Traits that it told of before and does not any more go; those that others gave it stay.
    """
    others = [each for each in known.traits if each not in known.own_traits]
    seen = replace(
        known,
        hypervisor=hello.hypervisor,
        traits=tuple(dict.fromkeys((*hello.traits, *others))),
        own_traits=hello.traits,
        boot_id=hello.boot_id,
        updated_at=uow.now,
        version=known.version + 1,
        provider_id=provider_id_of(known.name),
    )
    used = {name for name, amount in known.used.items() if amount}
    if not used:
        return replace(seen, topology=topology, inventory=inventory, degraded=None, reported=None)
    # Less than is in use is taken as it is: what is over-committed takes no new claims by itself.
    return taken_in(seen, topology, inventory, held_on(uow, known.name))


def _warn_of_too_little(before: Host, after: Host) -> None:
    """Say once, when it changes, of what a host now has less than is in use."""
    beyond = over_committed(root_of(after))
    if beyond != over_committed(root_of(before)):
        log.warning("host over-committed", host=after.name, beyond=dict(beyond))
