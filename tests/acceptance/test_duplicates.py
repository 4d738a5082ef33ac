"""I5: every message again, twice, in any order, long after its operation ended: nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika

from models.lifecycle import InstanceState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import instance_of

QUEUES = ("conductor", "scheduler", "reports", "dead_letters")
Heard = tuple[str, str, Any, bytes]


@contextmanager
def overheard(fleet: Fleet) -> Iterator[list[Heard]]:
    """Yield what fills with every message that passes our exchanges, once the block has ended."""
    with pika.BlockingConnection(pika.URLParameters(fleet.services.broker_url)) as link:
        channel = link.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for exchange in ("conductor", "asks", "reports"):
            channel.queue_bind(queue, exchange, "#")
        heard: list[Heard] = []
        yield heard
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return
            heard.append((method.exchange, method.routing_key, properties, body))


def say_again(fleet: Fleet, heard: list[Heard], times: int) -> None:
    """Publish everything again, in any order, and return when all of it has been taken."""
    again = heard * times
    random.Random(3).shuffle(again)
    with pika.BlockingConnection(pika.URLParameters(fleet.services.broker_url)) as link:
        channel = link.channel()
        for exchange, key, properties, body in again:
            channel.basic_publish(exchange, key, body, properties)
    queues = (*QUEUES, *(f"compute_{host}" for host in fleet.hosts))
    fleet.until(lambda: not any(map(fleet.sender.waiting, queues)), "all to be taken")
    last = fleet.sender.build()  # goes through every queue behind all of it
    fleet.ended(last)
    fleet.ended(fleet.sender.ask("delete", instance_of(last)))
    fleet.settle()


def world_of(fleet: Fleet, ids: list[str]) -> dict[str, Any]:
    """Return all that a message could change about these operations and everybody's hosts."""
    with fleet.store.read() as uow:
        operations = [uow.operations.get(id_) for id_ in ids]
        return {
            "operations": operations,
            "children": [uow.operations.where(parent_id=id_) for id_ in ids],
            "events": [uow.events.where(operation_id=id_) for id_ in ids],
            "instances": [i for i in uow.instances.where() if i.state is not InstanceState.DELETED],
            "allocations": uow.allocations.where(),
            "used": {host.name: (host.used, host.topology) for host in uow.hosts.where()},
            "dead letters": len(uow.dead_letters.where()),
            "guests": fleet.guests(),
        }


def test_every_message_again_and_late_changes_nothing(fleet: Fleet) -> None:
    with overheard(fleet) as heard:
        builds = [fleet.sender.build(), fleet.sender.build(), fleet.sender.build("no-flavor")]
        fleet.all_ended(builds)
        ids = list(builds)
        for verb in ("stop", "start", "delete"):
            ids.append(fleet.sender.ask(verb, instance_of(builds[0])))
            fleet.ended(ids[-1])
        fleet.settle()
    tasks = {properties.headers["task"] for _, _, properties, _ in heard}
    assert {
        *("conductor.build_instances", "conductor.delete_instance", "scheduler.select_hosts"),
        *("compute.spawn", "compute.power_off", "compute.power_on", "compute.destroy"),
        *("reports.reply", "reports.heartbeat"),
    } <= tasks
    before = world_of(fleet, ids)
    say_again(fleet, heard, times=2)
    after = world_of(fleet, ids)
    for what, value in before.items():
        assert after[what] == value, what
    for build in builds[:2]:
        assert fleet.effects(instance_of(build), "spawn") == 1
    assert fleet.effects(instance_of(builds[0]), "destroy") == 1
