"""The agent of one host with its threads, for as long as a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from conductor.processes.worker_settings import worker_settings
from conductor.settings import Settings
from models.errors import ConductorError, HostRefused
from models.ids import HostName
from models.messages.carrier import Carrier
from models.messages.internal import Instruction, Progress
from workers.agent import Agent
from workers.hypervisor.ports import Hypervisor
from workers.journal.ports import Journal
from workers.reports import progress_message


@contextmanager
def compute_agent(
    settings: Settings,
    host: str,
    hypervisor: Hypervisor,
    journal: Journal,
    carrier: Carrier,
    on_refused: Callable[[HostRefused], None],
) -> Iterator[Agent]:
    """Give an agent that is not started yet; it is killed at the end, with what still runs."""
    # A thread of its own, so that a slow broker delays nothing that is to be begun.
    reporting = ThreadPoolExecutor(1, thread_name_prefix="begun")
    try:
        with ThreadPoolExecutor(settings.compute_threads, thread_name_prefix="work") as pool:
            agent = Agent(
                host=HostName(host),
                hypervisor=hypervisor,
                journal=journal,
                post=carrier.send,
                settings=worker_settings(settings),
                executor=pool,
                on_begin=partial(_report_begun, reporting, carrier, host),
                on_refused=on_refused,
            )
            try:
                yield agent
            finally:
                agent.kill()  # else a hung call would keep the pool, and so the process
    finally:
        reporting.shutdown(cancel_futures=True)


def _report_begun(
    reporting: Executor, carrier: Carrier, host: str, instruction: Instruction
) -> None:
    """Say that an instruction is being carried out; it is shown to people, no more."""
    outgoing = progress_message(Progress(token=instruction.token, sender=host, percent=0))

    def send() -> None:
        with suppress(ConductorError):
            carrier.send([outgoing])

    reporting.submit(send)
