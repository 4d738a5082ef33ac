"""Who says it: the account of the broker that a report comes from, and for whom it may speak.

RabbitMQ refuses a message whose property `user_id` names another account than the one that sends
it. So what a report says of itself need not be believed: an account `compute_<host>` speaks for
that host alone, and the conductor's own account, which the scheduler has too, for everybody (where
one account serves all processes, it is that one). Any other is refused, whatever it may write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kombu import Connection

from models.errors import Rejected
from models.ids import compute_queue
from models.messages.internal import PROGRESS, REFUSED, REPLY, SCHEDULER
from models.secrets import shown

ACCOUNT_REFUSED: Final = "account_refused"

_OF_HOSTS: Final = compute_queue("")
_DEFAULT: Final = "guest"


def account_of(connection: Connection) -> str:
    """Return the account that a connection logs in with; without one in its URL, the broker's."""
    return connection.userid or _DEFAULT


def account_in(broker_url: str) -> str:
    """Return the account that a broker's URL names."""
    return account_of(Connection(broker_url))


def misspoken(task: str, body: Mapping[str, Any], account: str | None, own: str) -> Rejected | None:
    """Return why `account` may not send this report, or nothing; `own` is the conductor's."""
    if account == own:
        return None
    if not account:
        return _refused("the property user_id is missing: a report names the account that sends it")
    field = "sender" if task in (REPLY, PROGRESS, REFUSED) else "host"
    host = body.get(field)
    if not account.startswith(_OF_HOSTS):
        return _refused(f"the account {shown(account)} is none of a host and not the conductor's")
    if not isinstance(host, str) or host == SCHEDULER or compute_queue(host) != account:
        return _refused(f"{field} is {shown(host)}: {shown(account)} may not speak for it")
    return None


def _refused(message: str) -> Rejected:
    return Rejected(ACCOUNT_REFUSED, message, key="user_id")
