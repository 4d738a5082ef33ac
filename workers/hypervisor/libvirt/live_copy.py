"""A live migration as its source drives it: begun, watched, ended in time, or aborted."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

import libvirt

from models.errors import HostRefused
from models.messages.guests.guest_copies import CopyPolicy
from workers.hypervisor.ports import OnProgress

TICK_S: Final = 1.0
POST_COPY_AFTER_S: Final = 30.0
"""How long a copy may go on by itself before the guest runs on at the target."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The host to which a guest is copied, as its own hypervisor describes it."""

    uri: str
    address: str
    xml: str
    persistent_xml: str
    copies_disks: bool


def migrate(
    domain: Any,
    destination: Destination,
    policy: CopyPolicy,
    aborted: Event,
    on_progress: OnProgress,
) -> None:
    """Copy a running guest and stop it here; returns when it runs there.

    Raises libvirt's error of the migration, `HostRefused` (`aborted`, `copy_timeout`) when it was
    ended from here.
    """
    run: Callable[[], Any] = lambda: domain.migrateToURI3(  # noqa: E731  # typed, as libvirt is not
        destination.uri, _parameters(destination, policy), _flags(destination, policy)
    )
    with ThreadPoolExecutor(1, thread_name_prefix="migration") as pool:
        running = pool.submit(run)
        ended = _watch(domain, running, policy, aborted, on_progress)
        try:
            running.result()
        except libvirt.libvirtError:
            if ended is not None:
                raise ended from None
            raise


def _watch(
    domain: Any,
    running: Future[Any],
    policy: CopyPolicy,
    aborted: Event,
    on_progress: OnProgress,
) -> HostRefused | None:
    """Wait for the end; return why it was ended from here, if it was."""
    began, late, ended = time.monotonic(), False, None
    while True:
        with suppress(NotYet, libvirt.libvirtError):
            running.result(TICK_S)
        if running.done():
            return ended
        passed_s = time.monotonic() - began
        # The job may have gone by the time it is asked about: that is no error of the migration.
        with suppress(libvirt.libvirtError):
            on_progress(_percent(domain))
            if aborted.is_set() and ended is None:
                domain.abortJob()
                ended = HostRefused("aborted", "the live migration was aborted")
            elif policy.timeout_s is not None and passed_s > policy.timeout_s and not late:
                late = True
                ended = _end_late(domain, policy)
            elif policy.post_copy and passed_s > POST_COPY_AFTER_S:
                domain.migrateStartPostCopy()


def _end_late(domain: Any, policy: CopyPolicy) -> HostRefused | None:
    if policy.on_timeout == "pause":
        domain.suspend()  # what no longer runs is soon copied
        return None
    domain.abortJob()
    message = f"the copy was not complete after {policy.timeout_s:.0f} s"
    return HostRefused("copy_timeout", message)


def _percent(domain: Any) -> int:
    job = domain.jobStats()
    total = job.get(libvirt.VIR_DOMAIN_JOB_DATA_TOTAL, 0)
    left = job.get(libvirt.VIR_DOMAIN_JOB_DATA_REMAINING, 0)
    return max(0, min(99, 100 * (total - left) // total)) if total else 0


def _parameters(destination: Destination, policy: CopyPolicy) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: destination.xml,
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: destination.persistent_xml,
        libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://{destination.address}",
    }
    if policy.bandwidth_mib_s is not None:
        parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = policy.bandwidth_mib_s
    return parameters


def _flags(destination: Destination, policy: CopyPolicy) -> int:
    flags = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PEER2PEER
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
    )
    if destination.copies_disks:
        flags |= libvirt.VIR_MIGRATE_NON_SHARED_DISK
    if policy.auto_converge:
        flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
    if policy.post_copy:
        flags |= libvirt.VIR_MIGRATE_POSTCOPY
    return int(flags)
