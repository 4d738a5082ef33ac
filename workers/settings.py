"""What can be set on a worker; read from the environment elsewhere, checked and frozen here."""

from __future__ import annotations

from dataclasses import dataclass, fields

from models.errors import Rejected

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one agent; a value below zero is refused by name.

    `concurrency` bounds how many instances are worked on at once. Replies are kept for
    duplicates that come late, `replies_kept_s` seconds and at most `replies_kept` of them; the
    highest fence of an instance that is gone is kept for `fences_kept_s`. `reserved_*` is what
    the host keeps for itself. A call of the hypervisor is aborted after `call_limit_s` without a
    sign of life (fetching images after `fetch_limit_s`), before the conductor gives it up.
    `attempts` and `retry_wait_s` bound how long one call to the hypervisor or the broker is
    repeated before others decide. A cached image that no guest has goes after `images_kept_s`.
    """

    heartbeat_s: float = 5.0
    manifest_s: float = 60.0
    concurrency: int = 8
    replies_kept: int = 10_000
    replies_kept_s: float = HOUR_S
    fences_kept_s: float = 7 * DAY_S
    images_kept_s: float = 7 * DAY_S
    compact_after: int = 5_000
    call_limit_s: float = 540.0
    fetch_limit_s: float = HOUR_S
    attempts: int = 3
    retry_wait_s: float = 0.2
    reserved_memory_mib: int = 0
    reserved_disk_gb: int = 0
    reserved_vcpus: int = 0

    def __post_init__(self) -> None:
        for setting in fields(self):
            least = 1 if setting.name in {"concurrency", "attempts"} else 0
            value = getattr(self, setting.name)
            if value < least:
                raise Rejected(
                    "setting_invalid",
                    f"{setting.name} is {value}: at least {least}",
                    key=setting.name,
                )
