"""What a compute worker needs of the settings; loads nothing of the conductor's own."""

from __future__ import annotations

from conductor.settings import Settings
from workers.settings import WorkerSettings


def worker_settings(settings: Settings) -> WorkerSettings:
    """Return the settings of one agent."""
    return WorkerSettings(
        heartbeat_s=settings.heartbeat_s,
        manifest_s=settings.manifest_s,
        concurrency=settings.compute_threads,
        reserved_memory_mib=settings.reserved_host_memory_mib,
        reserved_disk_gb=settings.reserved_host_disk_gb,
        reserved_vcpus=settings.reserved_host_vcpus,
    )
