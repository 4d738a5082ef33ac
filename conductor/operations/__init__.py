"""Every operation, by kind: one file each, and the engine that moves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conductor.operations.build_instance import build_instance
from conductor.operations.build_instances import build_instances
from conductor.operations.cache_images import cache_images
from conductor.operations.cache_images_on_host import cache_images_on_host
from conductor.operations.catalogue_entries import define_entry, remove_entry
from conductor.operations.confirm_resize import confirm_resize
from conductor.operations.delete_instance import delete_instance
from conductor.operations.engine.definition import Operation
from conductor.operations.evacuate_instance import evacuate_instance
from conductor.operations.live_migrate_instance import live_migrate_instance
from conductor.operations.migrate_instance import migrate_instance
from conductor.operations.rebuild_instance import rebuild_instance
from conductor.operations.resize_instance import resize_instance
from conductor.operations.revert_resize import revert_resize
from conductor.operations.shelve_instance import shelve_instance
from conductor.operations.start_instance import start_instance
from conductor.operations.stop_instance import stop_instance
from conductor.operations.unshelve_instance import unshelve_instance

OPERATIONS: Mapping[str, Operation[Any]] = {
    operation.kind: operation
    for operation in (
        build_instances,
        build_instance,
        delete_instance,
        start_instance,
        stop_instance,
        migrate_instance,
        resize_instance,
        confirm_resize,
        revert_resize,
        live_migrate_instance,
        rebuild_instance,
        evacuate_instance,
        shelve_instance,
        unshelve_instance,
        cache_images,
        cache_images_on_host,
        define_entry,
        remove_entry,
    )
}
