"""The process of one host, put together: hypervisor, journal, agent, and its heartbeat."""

from __future__ import annotations

import os
import signal
from typing import Final

from conductor.exit_codes import DEFECT
from conductor.processes.compute.chosen_hypervisor import ComputeOptions, chosen_hypervisor
from conductor.processes.compute.compute_agent import compute_agent
from conductor.processes.periodic import Job, periodic_jobs
from conductor.processes.state_folders import make_folder
from conductor.settings import Settings
from models.errors import Broken, HostRefused
from tasks.app import make_app
from tasks.compute_tasks import Host, serve_compute
from tasks.consuming.task_worker import check_broker
from tasks.flower.event_stream import Silence
from tasks.sending.celery_carrier import CeleryCarrier
from workers.actions.action_registry import VERBS
from workers.agent import Agent
from workers.journal.journal_file import FileJournal

DRAIN_S: Final = 30.0
"""How long running work may take after SIGTERM; a longer call is aborted and done again later."""


def run_compute(settings: Settings, options: ComputeOptions) -> int:
    """Serve one host until told to stop; return the exit code.

    Raises `HostRefused` (`worker_refused`) when another worker serves the host already, or when
    this machine is known as another host.
    """
    refused: list[HostRefused] = []

    def end(error: HostRefused) -> None:
        refused.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    app = make_app(settings.broker_url)
    host = Host(options.host, VERBS)
    make_folder(options.directory, "--state-dir")
    # Before the broker: a second worker of this folder is refused, whatever is in its queue.
    journal = FileJournal(options.directory)
    carrier = CeleryCarrier(app)
    try:
        check_broker(app, [host.name])
        hypervisor = chosen_hypervisor(options)
        with compute_agent(settings, host.name, hypervisor, journal, carrier, end) as agent:
            code = _serve(settings, host, agent, carrier)
    finally:
        carrier.close()
        journal.close()
    if refused:
        raise refused[0]
    return code


def _serve(settings: Settings, host: Host, agent: Agent, carrier: CeleryCarrier) -> int:
    agent.start()
    with periodic_jobs(Job("heartbeat", agent.heartbeat, settings.heartbeat_s, vital=True)):
        code = serve_compute(settings.broker_url, host, agent, Silence(), carrier.send)
        healthy = agent.running
    try:
        agent.drain(DRAIN_S)
    except Broken:
        healthy = False
    return code if healthy else code or DEFECT
