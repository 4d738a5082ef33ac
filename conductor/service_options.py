"""What the conductor needs to know beside the times of its engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from conductor.placement.resources import Ratios


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended things are kept, in seconds."""

    operations_s: float = 30 * 86_400.0
    dead_letters_s: float = 30 * 86_400.0
    instances_s: float = 30 * 86_400.0
    processes_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the conductor needs to know beside the engine's times."""

    name: str = "conductor"
    confirm_after_s: float = 86_400.0
    ratios: Ratios = field(default_factory=Ratios)
    retention: Retention = field(default_factory=Retention)
