"""The process of one host, put together: hypervisor, journal, agent, and the clock that beats."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Final

from conductor.exit_codes import DEFECT
from conductor.processes.periodic import Job, periodic_jobs
from conductor.processes.simulated_hosts import default_hardware, read_hardware
from conductor.processes.state_folders import make_folder
from conductor.processes.worker_settings import worker_settings
from conductor.settings import Settings
from models.errors import Broken, ConductorError, HostRefused, Rejected
from models.ids import HostName
from models.messages.carrier import Carrier
from models.messages.internal import Instruction, Progress
from tasks.app import make_app
from tasks.compute_tasks import Host, serve_compute
from tasks.consuming.task_worker import check_broker
from tasks.flower.event_stream import EventStream, Silence
from tasks.sending.celery_carrier import CeleryCarrier
from workers.actions.action_registry import VERBS
from workers.agent import Agent
from workers.hypervisor.fault_injection import FaultProfile, FaultRates, InjectedFaults, seeded
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.inventory.traits import traits_of
from workers.journal.journal_file import FileJournal
from workers.reports import progress_message

DRAIN_S: Final = 30.0
"""How long running work may take after SIGTERM; a longer call is aborted and done again later."""


@dataclass(frozen=True, slots=True)
class ComputeOptions:
    """What the command line says of one host; all that outlives the process is in `directory`."""

    host: str
    topology: Path | None
    directory: Path
    habits: Mapping[str, str] = field(default_factory=dict)
    traits: tuple[str, ...] = ()


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
    events = Silence()
    carrier = CeleryCarrier(app)
    # A thread of its own, so that a slow broker delays nothing that is to be begun.
    voice = ThreadPoolExecutor(1, thread_name_prefix="begun")
    try:
        check_broker(app, [host.name])
        with ThreadPoolExecutor(settings.compute_threads, thread_name_prefix="work") as pool:
            agent = Agent(
                host=HostName(host.name),
                hypervisor=_hypervisor(options),
                journal=journal,
                post=carrier.send,
                settings=worker_settings(settings),
                executor=pool,
                on_begin=partial(_tell_begun, voice, carrier, host),
                on_refused=end,
            )
            try:
                code = _serve(settings, host, agent, events, carrier)
            finally:
                agent.kill()  # else a hung call would keep the pool, and so the process
    finally:
        voice.shutdown(cancel_futures=True)
        carrier.close()
        journal.close()
    if refused:
        raise refused[0]
    return code


def _tell_begun(voice: Executor, carrier: Carrier, host: Host, instruction: Instruction) -> None:
    """Say that an instruction is being carried out; it is shown to people, no more."""
    outgoing = progress_message(Progress(token=instruction.token, sender=host.name, percent=0))

    def send() -> None:
        with suppress(ConductorError):
            carrier.send([outgoing])

    voice.submit(send)


def _serve(
    settings: Settings, host: Host, agent: Agent, events: EventStream, carrier: Carrier
) -> int:
    agent.start()
    with periodic_jobs(Job("heartbeat", agent.heartbeat, settings.heartbeat_s, vital=True)):
        code = serve_compute(settings.broker_url, host, agent, events, carrier.send)
        healthy = agent.running
    try:
        agent.drain(DRAIN_S)
    except Broken:
        healthy = False
    return code if healthy else code or DEFECT


def _hypervisor(options: ComputeOptions) -> SimulatedHypervisor:
    hardware = read_hardware(options.topology) if options.topology else default_hardware()
    hardware = replace(hardware, traits=traits_of([*hardware.traits, *options.traits]))
    return SimulatedHypervisor(hardware, options.directory / "hypervisor", _fates(options.habits))


def _fates(given: Mapping[str, str]) -> InjectedFaults:
    """Return how the hypervisor behaves; raise `Rejected` naming the habit that is wrong.

    `NAME=VALUE` is about every verb, `VERB.NAME=VALUE` about one, on top of that.
    """
    seed = given.get("seed")
    habits = {name: text for name, text in given.items() if name != "seed"}
    for name in habits:
        _refuse_unknown(name)
    default = FaultRates(**_numbers(habits, ""))
    verbs = {
        verb: replace(default, **_numbers(habits, f"{verb}."))
        for verb in VERBS
        if any(name.startswith(f"{verb}.") for name in habits)
    }
    profile = FaultProfile(default, verbs)
    return seeded(profile, None if seed is None else int(_number("seed", seed)))


def _refuse_unknown(name: str) -> None:
    known = [item.name for item in fields(FaultRates)]
    verb, dot, habit = name.rpartition(".")
    if habit in known and (not dot or verb in VERBS):
        return
    message = (
        f"habit is {name}: should be one of {', '.join([*known, 'seed'])}, "
        f"or with one of {', '.join(VERBS)} and a dot before it"
    )
    raise Rejected("habit_unknown", message, key="habit")


def _numbers(habits: Mapping[str, str], prefix: str) -> dict[str, float]:
    """Return the habits of one verb, or (with an empty prefix) of all."""
    return {
        name.removeprefix(prefix): _number(name, text)
        for name, text in habits.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }


def _number(name: str, text: str) -> float:
    most = math.inf if name.endswith(("latency_s", "latency_max_s", "seed")) else 1.0
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most or math.isinf(number):
        rule = "a number from 0 to 1" if most == 1.0 else "a number, 0 or more"
        raise Rejected("habit_invalid", f"habit {name} is {text}: should be {rule}", key="habit")
    return number
