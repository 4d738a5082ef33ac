"""Rate limits of reports: what one host's account can cost the others.

Token buckets by the account that RabbitMQ has verified (`user_id`). A report beyond its rate is
acknowledged before anything of it is decoded; each is repeated by its worker, or asked for again.
A refused report costs a row among the dead letters: beyond the rate of these it is only counted.
The conductor's own account, which may say anything, has no limit.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kombu import Message

from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
    REPORTS,
)
from models.secrets import shown
from models.throttled_log import ThrottledLog

TOO_MANY: Final = "too_many_reports"
UNREADABLE: Final = "unreadable"
DEAD_LETTERED: Final = "dead_lettered"
"""By the broker, from the queue of reports: expired, or returned too often."""
MAX_REPORT_BYTES: Final = 1024 * 1024
SHOWN_FOR_S: Final = 300.0
"""How long `summary` names an account after its last report that was not taken."""

NOTICED_DROPS: Final = 1_000
"""So many unread reports of an account `summary` leaves out: an outage leaves some behind."""

_NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and so many a second in the long run."""

    burst: int
    per_s: float


REPORT_RATES: Final[Mapping[str, Rate]] = {
    HEARTBEAT: Rate(10, 5.0),
    PROGRESS: Rate(100, 20.0),
    REGISTRATION: Rate(20, 1.0),
    INVENTORY_REPORT: Rate(20, 1.0),
    REPLY: Rate(500, 50.0),
    REFUSED: Rate(120, 2.0),
}
REFUSAL_RATE: Final = Rate(120, 2.0)
"""Dead letters of one account: 120 a minute."""

MAX_BYTES: Final[Mapping[str, int]] = {
    HEARTBEAT: 128 * 1024,
    PROGRESS: 128 * 1024,
    REFUSED: 128 * 1024,
}


class TokenBuckets:
    """A token bucket for each key, full at first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._levels: dict[tuple[str, str], tuple[float, float]] = {}

    def take(self, key: tuple[str, str], rate: Rate) -> bool:
        """Take one token of the bucket `key`; say whether there was one."""
        now = self._clock()
        level, since = self._levels.get(key, (float(rate.burst), now))
        level = min(rate.burst, level + (now - since) * rate.per_s)
        allowed = level >= 1.0
        self._levels[key] = (level - 1.0 if allowed else level, now)
        return allowed


class ReportLimits:
    """What the conductor's process knows of the accounts that report; used by all its threads."""

    def __init__(
        self,
        own: str,
        count: Callable[[str], object] = lambda _code: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit every account but `own`; `count` is called with a code for what is not taken."""
        self._own = own
        self._count = count
        self._clock = clock
        self._buckets = TokenBuckets(clock)
        self._lock = threading.Lock()
        self._warnings = ThrottledLog()
        self._refused: dict[str, tuple[float, Counter[str]]] = {}

    def exceeds_rate(self, message: Message) -> bool:
        """Take a token for a report; without one it is counted, to be acknowledged unread."""
        task, account = message.headers.get("task"), account_of_message(message)
        rate = REPORT_RATES.get(task) if isinstance(task, str) else None
        if rate is None or account == self._own:
            return False
        with self._lock:
            allowed = self._buckets.take((account, str(task)), rate)
        if not allowed:
            self._note(account, TOO_MANY)
        return not allowed

    def keeps_refusal(self, account: str, code: str) -> bool:
        """Count a refused report, by its code; say whether it is to be kept as a dead letter."""
        self._note(account, code)
        if account == self._own:
            return True
        with self._lock:
            return self._buckets.take((account, ""), REFUSAL_RATE)

    def keeps_dead_letter(self, message: Message) -> bool:
        """Say whether a message of the queue `dead_letters` is to be kept: a report may not be."""
        headers: Any = message.headers  # a sender's: of any type, whatever the stubs say
        deaths = headers.get("x-death") if isinstance(headers, dict) else None
        death = deaths[0] if isinstance(deaths, list) and deaths else None
        if not isinstance(death, dict) or death.get("queue") != REPORTS:
            return True
        return self.keeps_refusal(account_of_message(message), DEAD_LETTERED)

    def summary(self) -> str | None:
        """Return who has lately sent what was not taken, and how much since it began; or nothing.

        The busiest accounts are named. A count starts anew after `SHOWN_FOR_S` of silence.
        """
        since = self._clock() - SHOWN_FOR_S
        with self._lock:
            self._refused = {
                name: (at, counts) for name, (at, counts) in self._refused.items() if at >= since
            }
            lately = {
                name: Counter(counts)
                for name, (_, counts) in self._refused.items()
                if counts[TOO_MANY] > NOTICED_DROPS or set(counts) - {TOO_MANY}
            }
        if not lately:
            return None
        worst = sorted(lately, key=lambda account: -lately[account].total())
        named = [f"{_name(account)}: {_counted(lately[account])}" for account in worst]
        more = f"; {len(named) - _NAMED_MOST} more accounts" if len(named) > _NAMED_MOST else ""
        return "; ".join(named[:_NAMED_MOST]) + more

    def _note(self, account: str, code: str) -> None:
        self._count(code)
        with self._lock:
            _, counts = self._refused.get(account, (0.0, Counter[str]()))
            counts[code] += 1
            self._refused[account] = (self._clock(), counts)
        self._warnings.warn("reports are not taken", account=_name(account), code=code)


def account_of_message(message: Message) -> str:
    """Return the account that RabbitMQ has verified; "" for a message that names none."""
    account = message.properties.get("user_id")
    return account if isinstance(account, str) else ""


def complaint_of_report_size(message: Message) -> str | None:
    """Return why a report is too large to be decoded, or nothing."""
    task = message.headers.get("task")
    most = MAX_BYTES.get(task, MAX_REPORT_BYTES) if isinstance(task, str) else MAX_REPORT_BYTES
    size = len(message.body or b"")
    return f"the body has {size} bytes: a report has at most {most}" if size > most else None


def _name(account: str) -> str:
    return shown(account) if account else "no account"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {code}" for code, count in counts.most_common())
