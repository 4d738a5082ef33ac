"""The conductor's service, made from the settings; and how often its slow work is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from conductor.operations.engine.context import EngineSettings
from conductor.operations.engine.transitions import Engine
from conductor.operations.operation_registry import OPERATIONS
from conductor.placement.resources import Ratios
from conductor.service import ConductorService
from conductor.service_options import Retention, ServiceSettings
from conductor.settings import Settings
from conductor.store import Store

RETIRE_EVERY_S: Final = 600.0
CONFIRM_EVERY_S: Final = 60.0


def build_service(
    settings: Settings,
    store: Store,
    carrier: Any,
    name: str,
    publish: Callable[[Any], None] | None = None,
) -> ConductorService:
    """Return a conductor as the settings describe it."""
    seconds = settings.retention_days * 86_400.0
    engine = Engine(
        OPERATIONS,
        EngineSettings(down_after_s=settings.down_after_s, ask_again_s=settings.ask_again_s),
    )
    ratios = Ratios(
        cpu=settings.cpu_allocation_ratio,
        ram=settings.ram_allocation_ratio,
        disk=settings.disk_allocation_ratio,
    )
    service = ServiceSettings(
        name, settings.confirm_after_s, ratios, Retention(seconds, seconds, seconds)
    )
    return ConductorService(store, carrier, engine, service, publish)
