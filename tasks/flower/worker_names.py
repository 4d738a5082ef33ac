"""Names of our processes in Flower: the same after a restart, so that no Offline row is left."""

from __future__ import annotations

import socket
from typing import Final

_MOST: Final = 100
_sockets: Final[list[socket.socket]] = []
"""A name is held, until the process ends, by a socket in Linux's abstract namespace: no file."""


def worker_name(role: str) -> str:
    """Return `role@machine`; `role-2@machine` and so on where that is held by a living process."""
    machine = socket.gethostname()
    names = (f"{role}-{number}@{machine}" for number in range(2, _MOST))
    first = f"{role}@{machine}"
    return next((name for name in (first, *names) if _is_free(name)), first)


def _is_free(name: str) -> bool:
    """Hold a name if nobody does; where there is no such namespace every name is free."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0vm-conductor/{name}"[:100])
    except FileNotFoundError:
        holder.close()
        return True
    except OSError:
        holder.close()
        return False
    _sockets.append(holder)
    return True
