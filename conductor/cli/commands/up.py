"""The embedded system, until a signal stops it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from conductor.cli.commands.database import prepared
from conductor.cli.rendering.output import write_line
from conductor.cli.requests.wait_display import await_system
from conductor.cli.simulated_fleet import kept_hosts
from conductor.exit_codes import say
from conductor.processes.database_access import drop_heartbeat
from conductor.processes.embedded.embedded_system import Embedded
from conductor.processes.logs import set_up_logs
from conductor.settings import read_settings
from conductor.store.open_store import open_store
from models.errors import Rejected
from models.messages.internal import CONDUCTOR


def add_to(app: typer.Typer) -> None:
    """Add `up`."""
    app.command("up")(up)


def up(
    hosts: Annotated[int, typer.Option(min=0, max=200, help="So many default hosts.")] = 4,
    host: Annotated[
        list[Path] | None,
        typer.Option(help="A file that describes hosts, as `hosts import` takes; repeatable."),
    ] = None,
) -> None:
    """Run conductor, scheduler and simulated hosts in this one process, until Ctrl-C or SIGTERM."""
    settings = read_settings()
    if not settings.embedded:
        message = "CONDUCTOR_BROKER_URL is set: `up` is the system without a broker, use `serve`"
        raise Rejected("setting_contradicts", message, key="CONDUCTOR_BROKER_URL")
    set_up_logs(settings.log_level)
    fleet = kept_hosts(settings.state_dir, hosts, host or ())
    prepared(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    store = open_store(settings.store_url)
    system = Embedded(settings, fleet, store)
    system.start()
    await_system(store, len(fleet))
    say(f"{len(fleet)} simulated hosts, database {settings.store_url}; Ctrl-C stops")
    write_line("ready")
    stopping.wait()
    system.stop()
    drop_heartbeat(store, CONDUCTOR)
    store.close()
