"""Every operation, by kind: one file each, and the engine that moves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conductor.operations.build_instance import build_instance
from conductor.operations.build_instances import build_instances
from conductor.operations.catalogue import define_entry, remove_entry
from conductor.operations.definition import Operation
from conductor.operations.delete_instance import delete_instance
from conductor.operations.start_instance import start_instance
from conductor.operations.stop_instance import stop_instance

OPERATIONS: Mapping[str, Operation[Any]] = {
    operation.kind: operation
    for operation in (
        build_instances,
        build_instance,
        delete_instance,
        start_instance,
        stop_instance,
        define_entry,
        remove_entry,
    )
}
