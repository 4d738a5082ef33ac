"""The scheduler's settings, from the settings of its process."""

from __future__ import annotations

import os
from dataclasses import replace

from conductor.scheduling.plugins import filters_named, weighers_named
from conductor.scheduling.settings import SchedulingSettings
from conductor.settings import Settings


def scheduling_settings(settings: Settings) -> SchedulingSettings:
    """Return what the scheduler needs to know; raise `Rejected` for an unknown filter or weigher.

    Drawn by the number of the process, so that several schedulers seldom want the same host.
    """
    plain = SchedulingSettings(strategy=settings.strategy, down_after_s=settings.down_after_s)
    named = [name for name in settings.filters.split(",") if name]
    pairs = [weigher.split("=") for weigher in settings.weighers.split(",") if weigher]
    return replace(
        plain,
        seed=os.getpid(),
        subset=settings.scheduler_subset,
        filters=filters_named(named) if named else plain.filters,
        weighers=weighers_named({name: float(number) for name, number in pairs}, plain.weights),
    )
