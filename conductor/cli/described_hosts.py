"""Hosts that files describe, added to the database; they are down until their workers register."""

from __future__ import annotations

from collections.abc import Sequence

from conductor.hosts.admission import namesake
from conductor.placement.providers import provider_id_of
from conductor.placement.resources import Ratios, inventory_of
from conductor.settings import Settings
from conductor.store import Host, UnitOfWork
from models.errors import Rejected
from models.hardware.accounting import without_use
from models.hardware.host_rules import refuse_excess
from models.messages.internal import Reservation
from workers.inventory import ImportedHost


def add_hosts(settings: Settings, found: Sequence[ImportedHost], uow: UnitOfWork) -> None:
    """Add the hosts; raise `Rejected` for one that is known or whose reserved share exceeds it."""
    reserved = Reservation(
        memory_mib=settings.reserved_host_memory_mib,
        disk_gb=settings.reserved_host_disk_gb,
        vcpus=settings.reserved_host_vcpus,
    )
    ratios = Ratios(
        settings.cpu_allocation_ratio,
        settings.ram_allocation_ratio,
        settings.disk_allocation_ratio,
    )
    for host in found:
        if uow.hosts.get(host.name) is not None:
            message = f"host is {host.name}: it is known already"
            raise Rejected("host_exists", message, key="host")
        other = namesake(host.name, uow.hosts.versions())
        if other is not None:
            message = f"host is {host.name}: {other} is known, and both names have the same queue"
            raise Rejected("host_name_shared", message, key="host")
        _refuse_excess(host, reserved)
        inventory = inventory_of(host.topology, host.disk_gb, reserved, ratios)
        uow.hosts.add(
            Host(
                name=host.name,
                topology=without_use(host.topology),
                inventory=inventory,
                traits=host.traits,
                own_traits=host.traits,
                created_at=uow.now,
                updated_at=uow.now,
                provider_id=provider_id_of(host.name),
            )
        )


def _refuse_excess(host: ImportedHost, reserved: Reservation) -> None:
    cells = host.topology.cells
    cpus = sum((cell.shared_cpus | cell.dedicated_cpus).bit_count() for cell in cells)
    refuse_excess("vcpus", reserved.vcpus, cpus, "CPUs")
    refuse_excess("memory", reserved.memory_mib, sum(c.memory_mib for c in cells), "MiB")
    refuse_excess("disk", reserved.disk_gb, host.disk_gb, "GiB")
