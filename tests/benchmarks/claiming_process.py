"""Claims in a process of its own, until it believes that nothing is left; prints what it met.

It knows the providers from the start, picks any that it believes free, and claims one VGPU of it.
Waits for one line of standard input before it begins.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import uuid
from collections import Counter

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.providers import Consumer
from conductor.store import Store
from conductor.store.open_store import open_store
from models.errors import ConductorError, Conflict

ATTEMPTS = 10


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("url")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    store = open_store(chosen.url)
    with store.read() as uow:
        believed = [provider.id for provider in uow.providers.where()]
    random.Random(chosen.seed).shuffle(believed)
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    for provider_id in believed:
        outcomes[_claim(store, provider_id, outcomes)] += 1
    ended = time.monotonic()
    print(json.dumps({"started": started, "ended": ended, "outcomes": outcomes}), flush=True)


def _claim(store: Store, provider_id: str, outcomes: Counter[str]) -> str:
    """Return `claimed`, or the code of the error; what is met on the way is counted as `met …`."""
    consumer = Consumer(str(uuid.uuid4()), {provider_id: {"VGPU": 1}}, "p", "u")
    retrying = Retrying(
        retry=retry_if_exception_type(Conflict),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.01, max=1.0),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt:
                outcomes["tries"] += 1
                with store.begin() as uow:
                    StorePlacement(uow).write([consumer])
    except ConductorError as error:
        return error.code
    return "claimed"


if __name__ == "__main__":
    main()
