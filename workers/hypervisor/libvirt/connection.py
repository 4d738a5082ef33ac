"""The connection to a libvirt daemon: made when it is needed, made again when it is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import libvirt
import structlog

from models.errors import ConductorError, HostRefused, Unreachable
from models.ids import InstanceId

T = TypeVar("T")
OnLifecycle = Callable[[str], None]

KEEPALIVE_S: Final = 5
KEEPALIVES_MISSED: Final = 6
"""A daemon that has answered nothing for half a minute is gone, and calls to it end."""

_LOST: Final = {
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_CONN,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_SYSTEM_ERROR,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE,
}
"""After these nobody knows what became of a call."""
_UNKNOWN: Final = {
    libvirt.VIR_ERR_OPERATION_TIMEOUT,
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
    libvirt.VIR_ERR_INTERNAL_ERROR,
}

log = structlog.get_logger(__name__)


def _run_events() -> None:
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            log.warning("libvirt's events failed", code=error.get_error_code())


_events_lock = threading.Lock()
_events_run = False


def _start_events() -> None:
    """Start libvirt's event loop, once a process and before the first connection, as it demands."""
    global _events_run  # noqa: PLW0603  # the library keeps this state for the whole process
    with _events_lock:
        if _events_run:
            return
        libvirt.registerErrorHandler(lambda *_: None, None)  # else it writes to our stderr
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()
        _events_run = True


class LibvirtConnection:
    """One connection for all threads; libvirt's own errors never leave it.

    Blocking calls to one domain are libvirt's to order. After a loss the next call connects again
    and registers for events anew.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None
        self._on_lifecycle: OnLifecycle | None = None

    def call(self, what: str, act: Callable[[Any], T]) -> T:
        """Return what `act` returns of the connection.

        Raises `HostRefused` where libvirt says no, `Unreachable` where the outcome is unknown; both
        name `what` and libvirt's number, never its text alone.
        """
        connection = self._opened()
        try:
            return act(connection)
        except libvirt.libvirtError as error:
            if not _is_alive(connection):
                self._forget(connection)
            raise translated(error, what) from error

    def watch(self, on_lifecycle: OnLifecycle) -> None:
        """Have `on_lifecycle` called with the UUID of each domain that starts, stops or changes."""
        self._on_lifecycle = on_lifecycle
        with self._lock:
            connection = self._connection
        if connection is not None:
            self._register(connection)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)

    def _opened(self) -> Any:
        _start_events()
        with self._lock:
            if self._connection is not None and _is_alive(self._connection):
                return self._connection
            try:
                self._connection = libvirt.open(self.uri)
                self._connection.setKeepAlive(KEEPALIVE_S, KEEPALIVES_MISSED)
            except libvirt.libvirtError as error:
                self._connection = None
                code = error.get_error_code()
                message = f"libvirt at {self.uri} cannot be reached (error {code})"
                raise Unreachable("libvirt_unreachable", message, libvirt_code=code) from error
            self._register(self._connection)
            return self._connection

    def _register(self, connection: Any) -> None:
        if self._on_lifecycle is not None:
            connection.domainEventRegisterAny(
                None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle, None
            )

    def _lifecycle(self, _conn: Any, domain: Any, _event: int, _detail: int, _: Any) -> None:
        if self._on_lifecycle is not None:
            self._on_lifecycle(domain.UUIDString())

    def _forget(self, connection: Any) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None
        _close(connection)


def translated(error: libvirt.libvirtError, what: str) -> ConductorError:
    """Return the error that an error of libvirt means, by its number."""
    code = error.get_error_code()
    text = (error.get_error_message() or "").strip()[:300]
    if code in _LOST:
        return Unreachable(
            "libvirt_lost", f"libvirt was lost during {what} (error {code})", libvirt_code=code
        )
    if code in _UNKNOWN:
        message = f"libvirt does not know what became of {what} (error {code}): {text}"
        return Unreachable("libvirt_failed", message, libvirt_code=code)
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return HostRefused("domain_missing", f"libvirt has no such guest for {what}")
    if code == libvirt.VIR_ERR_OPERATION_ABORTED:
        return HostRefused("aborted", f"{what} was aborted")
    return HostRefused(
        "libvirt_refused", f"libvirt refuses {what} (error {code}): {text}", libvirt_code=code
    )


def domain_of(connection: Any, instance_id: InstanceId) -> Any | None:
    """Return the domain of an instance, None where there is none."""
    try:
        return connection.lookupByUUIDString(instance_id)
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
            return None
        raise


def _is_alive(connection: Any) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _close(connection: Any) -> None:
    with contextlib.suppress(libvirt.libvirtError):
        connection.close()
