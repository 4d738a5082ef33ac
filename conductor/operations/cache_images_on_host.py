"""Have images cached on one host, beside those that are."""

from __future__ import annotations

from dataclasses import dataclass

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.build_request import image_of, image_value
from conductor.operations.steps.image_sources import image_file
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json

FETCH_TIMEOUT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Cache:
    """Which images, and where."""

    host: str
    images: tuple[str, ...]


cache_images_on_host = Operation("cache_images_on_host", Cache)


@cache_images_on_host.step
def fetch(cache: Cache, uow: UnitOfWork) -> Outcome[Cache]:
    """Tell the host; what it has already costs nothing, so there is nothing to undo either."""
    images = [image_file(image_value(image_of(name, uow, "images"))) for name in cache.images]
    args = {"images": [image.to_json() for image in images]}
    return DispatchToHost(cache, cache.host, None, "cache_images", args, timeout_s=FETCH_TIMEOUT_S)


@cache_images_on_host.result
def cached(cache: Cache) -> Json:
    """Return the host and its images."""
    return {"host": cache.host, "images": list(cache.images)}


@cache_images_on_host.replay
def fetch_again(_: NewOperation, old: OperationRecord, __: UnitOfWork) -> Cache:
    """Ask the same host again."""
    return cache_images_on_host.load(old.data)
