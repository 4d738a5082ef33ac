"""Flower as it is published, set up so that it shows everything and changes nothing."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Annotated, Final

import typer

from conductor.exit_codes import say
from conductor.processes.logs import set_up_logs
from conductor.settings import Settings, read_settings
from models.errors import Rejected
from tasks.app import make_app

_HIGHEST_PORT: Final = 65_535
_COLUMNS: Final = "name,kwargs,state,received,runtime,worker,uuid"


def add_to(app: typer.Typer) -> None:
    """Add `flower`."""
    app.command("flower")(flower)


def flower(
    port: Annotated[
        int, typer.Option(min=1, max=_HIGHEST_PORT, help="The port to listen on.")
    ] = 5555,
    address: Annotated[
        str,
        typer.Option(help="The address to listen on; /metrics and /healthcheck ask no password."),
    ] = "127.0.0.1",
) -> None:
    """Watch operations in Flower: read-only, behind the password of CONDUCTOR_FLOWER_PASSWORD.

    CONDUCTOR_FLOWER_USER is the name that goes with it. Other options of Flower are taken from
    its own variables, FLOWER_URL_PREFIX for example.
    """
    settings = read_settings()
    login = _login(settings)
    _refuse_unusable(address, port)
    set_up_logs(settings.log_level)
    # Our processes answer no remote control, and Flower complains of that at every page.
    logging.getLogger("flower.inspector").setLevel(logging.ERROR)
    if not _is_loopback(address):
        say(f"warning: /metrics and /healthcheck ask for no password on {address}: put a proxy")
    say(f"Flower answers on http://{address}:{port} to {settings.flower_user}")
    raise typer.Exit(_run(settings.broker_url, login, (f"--port={port}", f"--address={address}")))


def _run(broker_url: str, login: str, where: tuple[str, str]) -> int:
    # Imported here: it defines its options for the whole process.
    from flower.options import options  # noqa: PLC0415 - see above

    # Set here, so that the password is on no command line; what is said there wins over FLOWER_*.
    options.basic_auth = [login]
    fixed = (
        "--read-only=true",
        "--logging=none",
        "--conf=/dev/null",
        f"--tasks-columns={_COLUMNS}",
    )
    # The stubs say that it never returns; it does, at SIGTERM, with an exit code if there is one.
    start: Callable[[list[str]], object] = make_app(broker_url).start
    code = start(["flower", *where, *fixed])
    return code if isinstance(code, int) else 0


def _login(settings: Settings) -> str:
    """Return user and password as Flower compares them; raise `Rejected` for what it cannot."""
    if settings.embedded:
        message = "CONDUCTOR_BROKER_URL is not set: Flower shows what goes through a broker"
        raise Rejected("setting_missing", message, key="CONDUCTOR_BROKER_URL")
    user, password = settings.flower_user, settings.flower_password.get_secret_value()
    if not password:
        message = "CONDUCTOR_FLOWER_PASSWORD is not set: Flower shows nothing without one"
        raise Rejected("setting_missing", message, key="CONDUCTOR_FLOWER_PASSWORD")
    if not user or ":" in user:
        message = f"CONDUCTOR_FLOWER_USER is {user}: should be a name without a colon"
        raise Rejected("setting_invalid", message, key="CONDUCTOR_FLOWER_USER")
    # Flower compares ASCII only, and fails at every login otherwise.
    if not f"{user}{password}".isascii():
        message = "CONDUCTOR_FLOWER_USER and CONDUCTOR_FLOWER_PASSWORD should be ASCII"
        raise Rejected("setting_invalid", message, key="CONDUCTOR_FLOWER_PASSWORD")
    return f"{user}:{password}"


def _refuse_unusable(address: str, port: int) -> None:
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        message = f"--address {address} --port {port}: {error.strerror or error}"
        raise Rejected("address_unusable", message, key="port") from None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
