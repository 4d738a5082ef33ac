"""Have images on the hosts of an aggregate before instances need them: a child for each host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from conductor.liveness import host_is_up
from conductor.operations.cache_images_on_host import Cache, cache_images_on_host
from conductor.operations.engine.children import new_child, ready
from conductor.operations.engine.definition import AwaitChildren, NewOperation, Operation, Outcome
from conductor.operations.steps.build_request import image_of
from conductor.store import OperationRecord, UnitOfWork
from models.errors import HostRefused, NoValidHost, Rejected
from models.json_types import Json
from models.lifecycle import OperationState
from models.messages.base import parse
from models.messages.catalogue import AggregateBody
from models.messages.requests import CacheImages


@dataclass(frozen=True, slots=True)
class Caches:
    """Which images on which hosts; `skipped` were down when it was asked."""

    aggregate: str
    images: tuple[str, ...]
    hosts: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many children there are."""
        return len(self.hosts)


HOSTS_AT_ONCE = 4
"""How many hosts fetch at the same time: the image store serves guests meanwhile."""

cache_images = Operation("cache_images", Caches)


@cache_images.accept
def create_children(new: NewOperation, uow: UnitOfWork) -> Caches:
    """Aggregate and images must be known; hosts of the aggregate that are down are left out."""
    request = cast(CacheImages, new.request)
    entry = uow.catalogue.get("aggregate", request.aggregate)
    if entry is None:
        message = f"aggregate is {request.aggregate}: no such aggregate"
        raise Rejected("aggregate_unknown", message, key="aggregate")
    images = tuple(dict.fromkeys(image_of(image, uow, "images").id for image in request.images))
    members = dict.fromkeys(parse(AggregateBody, entry.body).hosts)
    up = tuple(host for host in members if host_is_up(uow, host, new.down_after_s))
    children = [_child(new, Cache(host, images), uow.now) for host in up]
    first = [ready(child) for child in children[:HOSTS_AT_ONCE]]
    uow.operations.add_many([*first, *children[HOSTS_AT_ONCE:]])
    down = tuple(host for host in members if host not in up)
    return Caches(request.aggregate, images, up, down)


@cache_images.step
def let_hosts_fetch(caches: Caches, _: UnitOfWork) -> Outcome[Caches]:
    """Let a few hosts fetch at once, the next whenever one has ended, and wait for all of them."""
    if not caches.hosts:
        down = ", ".join(caches.skipped) or "none is in it"
        message = f"no host of aggregate {caches.aggregate} is up: {down}"
        raise NoValidHost("no_host_up", message, skipped=list(caches.skipped))
    return AwaitChildren(caches)


@cache_images.children_failed
def name_hosts(caches: Caches, children: Sequence[OperationRecord]) -> Json:
    """Name each host that has not cached them, and why, and those left out; the others have."""
    failed = {
        str(child.data["host"]): dict(child.error or {})
        for child in children
        if child.state is not OperationState.SUCCEEDED
    }
    done = [str(c.data["host"]) for c in children if str(c.data["host"]) not in failed]
    reasons = "; ".join(f"{host}: {error.get('message')}" for host, error in failed.items())
    message = f"{len(failed)} of {len(children)} hosts have not cached the images. {reasons}"
    if caches.skipped:
        message += f". Left out, since they were down: {', '.join(caches.skipped)}"
    left_out = list(caches.skipped)
    error = HostRefused("hosts_failed", message, failed=failed, done=done, skipped=left_out)
    return error.to_json()


@cache_images.result
def cached(caches: Caches) -> Json:
    """Return the images, the hosts that have them, and those that were down."""
    return {
        "aggregate": caches.aggregate,
        "images": list(caches.images),
        "hosts": list(caches.hosts),
        "skipped": list(caches.skipped),
    }


def _child(new: NewOperation, cache: Cache, now: float) -> OperationRecord:
    child = new_child(new, cache_images_on_host, f"cache-{cache.host}", cache, now)
    return replace(child, request={"host": cache.host, "images": list(cache.images)})
