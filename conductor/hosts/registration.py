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

from conductor.hosts.admission import Admitted, Verdict, admit, note_report, register_worker
from conductor.hosts.canary import note_obeyed, reset_canaries
from conductor.hosts.reconciliation import reconcile
from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.placement.consistency.changed_hardware import guests_on, with_reported
from conductor.placement.providers import over_committed, provider_id_of, root_of
from conductor.placement.resources import Ratios, inventory_of
from conductor.store import Host, Inventory, Registration, UnitOfWork
from models.errors import Rejected
from models.hardware import HostTopology
from models.hardware.accounting import without_use
from models.hardware.host_rules import remarks_on, sound
from models.messages.hardware.hardware_json import host_from_json
from models.messages.internal import HostRegistration, InventoryReport, OutgoingMessage

log = structlog.get_logger(__name__)


def register_host(
    uow: UnitOfWork, host_registration: HostRegistration, ratios: Ratios, down_after_s: float
) -> Verdict:
    """Take in a host whose worker has started, if that worker may serve it; return whether.

    Dispatches that it has not replied to are sent again: its memory and its messages may be
    gone; its journal has what it has done already.
    """
    verdict = admit(uow, host_registration, down_after_s)
    before = uow.registrations.get(host_registration.host)
    if not isinstance(verdict, Admitted) or not note_report(
        uow,
        host_registration.host,
        host_registration.boot_id,
        host_registration.sequence,
        lists=True,
    ):
        return verdict
    topology = _described(host_registration)
    inventory = inventory_of(
        topology, host_registration.disk_gb, host_registration.reserved, ratios
    )
    known = uow.hosts.lock(host_registration.host)
    if known is None:
        _refuse_provider_name(uow, host_registration.host)
        uow.hosts.add(_new_host(uow, host_registration, topology, inventory))
    else:
        returned = _returned(uow, known, host_registration, topology, inventory)
        _warn_of_too_little(known, returned)
        uow.hosts.save(returned)
    register_worker(uow, host_registration)
    reconcile(
        uow,
        InventoryReport(
            host=host_registration.host,
            boot_id=host_registration.boot_id,
            sequence=host_registration.sequence,
            domains=host_registration.domains,
            accounting_degraded=host_registration.accounting_degraded,
        ),
    )
    reset_canaries(uow, host_registration.host)
    note_obeyed(uow, host_registration.host, host_registration.obeys)
    _dispatch_again(uow, host_registration, before)
    return verdict


def _dispatch_again(
    uow: UnitOfWork, host_registration: HostRegistration, before: Registration | None
) -> None:
    """Send dispatches without a reply once more, addressed to the worker that is there now."""
    for record in uow.operations.where(waiting_on=ON_HOST + host_registration.host, ended_at=None):
        if record.waiting is None:
            continue
        outgoing = record.waiting["outgoing"]
        if before is not None and before.worker_id != host_registration.worker_id:
            outgoing = {
                **outgoing,
                "body": {**outgoing["body"], "worker_id": host_registration.worker_id},
            }
            uow.operations.save(replace(record, waiting={**record.waiting, "outgoing": outgoing}))
        uow.post(OutgoingMessage(**outgoing))


def _described(host_registration: HostRegistration) -> HostTopology:
    """Return the hardware that a host reports, without use; log what may be a mistake in it."""
    topology = without_use(sound(host_from_json(host_registration.hardware)))
    for remark in remarks_on(topology):
        log.warning("host taken in", host=host_registration.host, remark=remark)
    return topology


def _refuse_provider_name(uow: UnitOfWork, name: str) -> None:
    """Refuse a host that is called as a resource provider is: allocations of one are by name."""
    if uow.providers.count(name=name):
        message = f"host is {name}: a resource provider has that name"
        raise Rejected("provider_name_taken", message, key="host")


def _new_host(
    uow: UnitOfWork,
    host_registration: HostRegistration,
    topology: HostTopology,
    inventory: Mapping[str, Inventory],
) -> Host:
    return Host(
        name=host_registration.host,
        topology=topology,
        inventory=inventory,
        hypervisor=host_registration.hypervisor,
        traits=host_registration.traits,
        own_traits=host_registration.traits,
        boot_id=host_registration.boot_id,
        created_at=uow.now,
        updated_at=uow.now,
        provider_id=provider_id_of(host_registration.host),
    )


def _returned(
    uow: UnitOfWork,
    known: Host,
    host_registration: HostRegistration,
    topology: HostTopology,
    inventory: Mapping[str, Inventory],
) -> Host:
    """Return a known host after a restart: with its use, and with doubt if it has changed.

    Traits that it reported before and does not any more go; those that others gave it stay.
    """
    others = [trait for trait in known.traits if trait not in known.own_traits]
    seen = replace(
        known,
        hypervisor=host_registration.hypervisor,
        traits=tuple(dict.fromkeys((*host_registration.traits, *others))),
        own_traits=host_registration.traits,
        boot_id=host_registration.boot_id,
        updated_at=uow.now,
        version=known.version + 1,
        provider_id=provider_id_of(known.name),
    )
    used = {name for name, amount in known.used.items() if amount}
    if not used:
        return replace(seen, topology=topology, inventory=inventory, degraded=None, reported=None)
    # Less than is in use is taken as it is: what is over-committed takes no new claims by itself.
    return with_reported(seen, topology, inventory, guests_on(uow, known.name))


def _warn_of_too_little(before: Host, after: Host) -> None:
    """Say once, when it changes, of what a host now has less than is in use."""
    beyond = over_committed(root_of(after))
    if beyond != over_committed(root_of(before)):
        log.warning("host over-committed", host=after.name, beyond=dict(beyond))
