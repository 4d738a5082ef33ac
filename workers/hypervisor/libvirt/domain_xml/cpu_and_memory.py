"""vCPUs, guest NUMA cells, pins and memory of a domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from models.hardware import CpuMask, PlacedCell, Placement, format_cpu_list
from models.messages.guests.guest_definition import GuestDefinition
from models.units import KIB_PER_MIB
from workers.hypervisor.libvirt.domain_xml.elements import child, on_off
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext

ORDINARY_PAGE_KIB = 4
_ENLIGHTENMENTS: Final = ("relaxed", "vapic", "vpindex", "runtime", "synic")
_SPINLOCK_RETRIES: Final = 8191
"""So often Windows tries before it lets another vCPU run; the least that Hyper-V takes is 4095."""


def add_memory(domain: Element, guest: GuestDefinition, placement: Placement | None) -> None:
    """Say how much memory there is, of which pages, and whether it may be swapped out."""
    child(domain, "memory", guest.memory_mib, unit="MiB")
    pages = [cell for cell in _cells(placement) if (cell.page_size_kib or 0) > ORDINARY_PAGE_KIB]
    realtime = guest.hardware.realtime_vcpus is not None
    locked = guest.hardware.locked_memory or realtime
    if not pages and not locked:
        return
    backing = child(domain, "memoryBacking")
    if pages:
        huge = child(backing, "hugepages")
        for cell in pages:
            child(huge, "page", size=cell.page_size_kib, unit="KiB", nodeset=cell.id)
    if realtime:
        # A page that the kernel has merged is copied at the next write: a delay nobody expects.
        child(backing, "nosharepages")
    if locked:
        child(backing, "locked")


def add_cpus(
    domain: Element, guest: GuestDefinition, placement: Placement | None, host: HostContext
) -> None:
    """Say how many vCPUs there are, where each runs, and where the emulator does."""
    child(domain, "vcpu", guest.vcpus, placement="static")
    tune = Element("cputune")
    share = guest.hardware.cpu_share
    if share is not None:
        for tag, value in (
            ("shares", share.shares),
            ("period", share.period_us),
            ("quota", share.quota_us),
        ):
            if value is not None:
                child(tune, tag, value)
    for vcpu, cpus in sorted(vcpu_cpus(guest, placement, host)):
        child(tune, "vcpupin", vcpu=vcpu, cpuset=format_cpu_list(cpus))
    emulator = emulator_cpus(placement, host)
    if emulator:
        child(tune, "emulatorpin", cpuset=format_cpu_list(emulator))
    if guest.hardware.realtime_vcpus is not None:
        child(tune, "vcpusched", vcpus=guest.hardware.realtime_vcpus, scheduler="fifo", priority=1)
    if len(tune):
        domain.append(tune)


def add_host_nodes(domain: Element, placement: Placement | None, host: HostContext) -> None:
    """Bind the memory of each guest cell to the NUMA node where it was claimed."""
    cells = _cells(placement)
    if not cells or not host.sees_nodes:
        return
    tune = child(domain, "numatune")
    nodes = ",".join(str(node) for node in sorted({cell.host_cell for cell in cells}))
    child(tune, "memory", mode="strict", nodeset=nodes)
    for cell in cells:
        child(tune, "memnode", cellid=cell.id, mode="strict", nodeset=cell.host_cell)


def add_cpu_model(
    domain: Element, guest: GuestDefinition, placement: Placement | None, host: HostContext
) -> None:
    """Say which CPU the guest sees, in which topology, and in which NUMA cells.

    The host's own model as far as it can move to its likes; emulation has all it can emulate.
    """
    mode = "host-model" if host.virtualization == "kvm" else "maximum"
    cpu = child(domain, "cpu", mode=mode)
    topology = guest.hardware.cpu_topology
    if topology is not None:
        child(
            cpu,
            "topology",
            sockets=topology.sockets,
            dies=1,
            cores=topology.cores,
            threads=topology.threads,
        )
    if guest.hardware.hide_hypervisor and host.virtualization == "qemu":
        # Under KVM a feature of its own hides more than this flag.
        child(cpu, "feature", policy="disable", name="hypervisor")
    cells = _cells(placement)
    if cells:
        numa = child(cpu, "numa")
        for cell in cells:
            child(
                numa,
                "cell",
                id=cell.id,
                cpus=format_cpu_list(cell.shared_vcpus | cell.dedicated_vcpus),
                memory=cell.memory_mib * KIB_PER_MIB,
                unit="KiB",
            )


def has_enlightenments(guest: GuestDefinition, host: HostContext) -> bool:
    """Say whether the guest is told what Hyper-V would tell it; emulation has none of it."""
    return guest.hardware.hyperv and host.virtualization == "kvm"


def add_features(domain: Element, guest: GuestDefinition, host: HostContext) -> None:
    """Say what the machine has besides: ACPI, the PMU, and whether it says that it is virtual."""
    features = child(domain, "features")
    child(features, "acpi")
    child(features, "apic")
    hardware = guest.hardware
    if has_enlightenments(guest, host):
        hyperv = child(features, "hyperv")
        for name in _ENLIGHTENMENTS:
            child(hyperv, name, state="on")
        child(hyperv, "spinlocks", state="on", retries=_SPINLOCK_RETRIES)
    if hardware.hide_hypervisor:
        child(child(features, "kvm"), "hidden", state="on")
    if hardware.pmu is not None:
        child(features, "pmu", state=on_off(hardware.pmu))
    if hardware.secure_boot:
        child(features, "smm", state="on")


def vcpu_cpus(
    guest: GuestDefinition, placement: Placement | None, host: HostContext
) -> Iterator[tuple[int, CpuMask]]:
    """Yield the host CPUs of each vCPU: one where it is pinned, else the shared ones around it."""
    pinned: set[int] = set()
    for cell in _cells(placement):
        for vcpu, cpu in cell.pinning:
            pinned.add(vcpu)
            yield vcpu, 1 << cpu
        near = host.shared_cpus.get(cell.host_cell, 0)
        for vcpu in range(guest.vcpus):
            if cell.shared_vcpus >> vcpu & 1 and vcpu not in pinned and near:
                pinned.add(vcpu)
                yield vcpu, near
    for vcpu in range(guest.vcpus):
        if vcpu not in pinned and host.all_shared_cpus:
            yield vcpu, host.all_shared_cpus


def emulator_cpus(placement: Placement | None, host: HostContext) -> CpuMask:
    """Return where the emulator's own threads run: reserved CPUs, shared ones, or the guest's."""
    cells = _cells(placement)
    reserved = pinned = 0
    for cell in cells:
        reserved |= cell.reserved_cpus
        for _, cpu in cell.pinning:
            pinned |= 1 << cpu
    return reserved or host.all_shared_cpus or pinned


def _cells(placement: Placement | None) -> tuple[PlacedCell, ...]:
    return placement.cells if placement is not None else ()
