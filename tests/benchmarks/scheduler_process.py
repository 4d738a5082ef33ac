"""A scheduler in a process of its own: reads messages, waits for the word, prints what it measured.

Lines of standard input: messages as JSON, then an empty line, then one more when it is to begin.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter

from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.open_store import open_store
from models.messages.base import parse
from models.messages.internal import SelectHosts


def main() -> None:
    began = time.monotonic()
    options = argparse.ArgumentParser()
    options.add_argument("url")
    options.add_argument("strategy", choices=("spread", "pack"))
    options.add_argument("--warm", type=int, default=0)
    chosen = options.parse_args()
    conflicts: Counter[str] = Counter()
    settings = SchedulingSettings(strategy=chosen.strategy, seed=os.getpid())

    def note(code: str) -> None:
        conflicts[code] += 1

    scheduler = Scheduler(open_store(chosen.url), settings, note)
    lines = iter(sys.stdin.readline, "\n")
    messages = [parse(SelectHosts, json.loads(line)) for line in lines]
    first = time.monotonic()
    for message in messages[: chosen.warm]:
        scheduler.handle(message)
        if message is messages[0]:
            first = time.monotonic() - first
    conflicts.clear()
    print("ready", flush=True)
    sys.stdin.readline()
    took, worked, outcomes = [], [], Counter[str]()
    started = time.monotonic()
    for message in messages[chosen.warm :]:
        before, busy = time.perf_counter(), time.thread_time()
        (outgoing,) = scheduler.handle(message)
        took.append(time.perf_counter() - before)
        worked.append(time.thread_time() - busy)
        outcomes[outgoing.body["outcome"]] += 1
    ended = time.monotonic()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured = {
        "started": started,
        "ended": ended,
        "began": began,
        "first_answer_s": first,
        "took_s": took,
        "worked_s": worked,
        "outcomes": outcomes,
        "conflicts": conflicts,
        "peak_mib": peak_kib / 1024,
    }
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
