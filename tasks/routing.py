"""The broker's topology: work, one queue a role and one a host; the dead; notifications.

Whoever may write to an exchange reaches every queue that is bound to it: a broker checks the
routing key of a message against topic permissions, but not the keys in its headers CC and BCC. So
each kind of sender has an exchange of its own, bound to nothing but what it may reach: other
services write requests to `conductor`, hosts their word to `reports`, and only the control plane
asks, through `asks`, the scheduler and hosts.
"""

from __future__ import annotations

from collections.abc import Iterable

from amqp.exceptions import AccessRefused, PreconditionFailed
from celery.events.event import event_exchange
from kombu import Connection, Exchange, Queue

from models.errors import Rejected, Unreachable
from models.ids import compute_queue
from models.messages.internal import CONDUCTOR, DEAD_LETTERS, REPORTS, SCHEDULER
from models.messages.notifications import TOPIC

DELIVERY_LIMIT = 20
"""Returns of one message before it is dead-lettered.

High, since every message in the prefetch buffer of a killed process counts as returned, and
innocent ones must survive a row of crashes; low enough that a message which kills its worker ends.
"""

DIFFERS = "topology_differs"
"""A queue or exchange of ours is there with other arguments: it is not taken to be declared."""

EXCHANGE = Exchange(CONDUCTOR, type="topic")
REPORTS_EXCHANGE = Exchange(REPORTS, type="topic")
INTERNAL_EXCHANGE = Exchange("asks", type="topic")
DEAD_EXCHANGE = Exchange("dead_letters", type="fanout")
NOTIFICATIONS = Exchange(TOPIC, type="topic")
"""Where whoever likes binds a queue of its own; with none bound, what comes is dropped."""

_WORK = {
    "x-queue-type": "quorum",
    "x-delivery-limit": DELIVERY_LIMIT,
    "x-dead-letter-exchange": DEAD_EXCHANGE.name,
    # At least once: a dead letter survives a broker crash on its way; it needs reject-publish.
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
# One worker serves one host: a second process waits until the first is gone.
_HOST = {**_WORK, "x-single-active-consumer": True}
# RabbitMQ 4 gives every quorum queue a limit, and drops from a queue without dead letters.
_DEAD = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}

_ROLES = {CONDUCTOR: EXCHANGE, SCHEDULER: INTERNAL_EXCHANGE, REPORTS: REPORTS_EXCHANGE}


def is_ours(queue: str) -> bool:
    """Say whether a queue of this name belongs to the topology; others are callers' own."""
    return queue in (*_ROLES, DEAD_LETTERS) or queue.startswith(compute_queue(""))


def exchange_of(queue: str) -> Exchange:
    """Return the exchange through which one of our queues is reached; the key is its name."""
    return _ROLES.get(queue, INTERNAL_EXCHANGE)


def work_queue(name: str) -> Queue:
    """Return one of the queues `conductor`, `scheduler`, `reports`, as consumers name it."""
    return Queue(name, exchange_of(name), routing_key=name, queue_arguments=_WORK, no_declare=True)


def host_queue(host: str) -> Queue:
    """Return the queue of a host."""
    name = compute_queue(host)
    return Queue(name, INTERNAL_EXCHANGE, routing_key=name, queue_arguments=_HOST, no_declare=True)


def dead_letter_queue() -> Queue:
    """Return the queue where every refused message ends, whatever its routing key was."""
    return Queue(DEAD_LETTERS, DEAD_EXCHANGE, queue_arguments=_DEAD, no_declare=True)


def declare_topology(connection: Connection, hosts: Iterable[str] = ()) -> None:
    """Declare exchanges, queues and bindings, those of `hosts` included; again is harmless.

    Raises `Rejected` (`broker_forbids`) when the user may not declare, `Rejected`
    (`topology_differs`) when something of the same name is there with other properties, and
    `Unreachable` when the broker is.
    """
    roles = [work_queue(name) for name in _ROLES]
    queues = [dead_letter_queue(), *roles, *(host_queue(host) for host in hosts)]
    try:
        with connection.channel() as channel:
            for exchange in (*_ROLES.values(), DEAD_EXCHANGE, NOTIFICATIONS, event_exchange):
                exchange(channel).declare()
            for queue in queues:
                bound = queue(channel)
                bound.queue_declare()
                bound.queue_bind()
    except AccessRefused as error:
        raise Rejected("broker_forbids", f"the broker forbids declaring: {error}") from error
    except PreconditionFailed as error:
        what = f"the broker has it with other properties, which only you can mend there: {error}"
        raise Rejected(DIFFERS, what) from error
    except connection.connection_errors as error:
        raise Unreachable("broker_unreachable", f"the broker went away: {error}") from error
