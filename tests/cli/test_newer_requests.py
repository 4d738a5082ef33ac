"""A request of a later release waits among the dead letters until it can be replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from conductor.cli.requests.request_sending import Inbox
from conductor.processes.embedded.embedded_system import Embedded
from conductor.store.open_store import open_store
from models.ids import new_operation_id
from models.messages.internal import CONDUCTOR, OutgoingMessage
from tests.cli.running import Cli
from tests.limits import Limit

NEWER = {"context": {"project_id": "p"}, "version": 2, "everything": "else"}


def test_its_replay_is_an_operation_of_its_own_that_is_kept_again_while_it_is_not_understood(
    here: Cli, system: Embedded
) -> None:
    store = open_store(system.settings.store_url)
    id_ = new_operation_id()
    Inbox(store).send([OutgoingMessage(CONDUCTOR, "conductor.stop_instance", NEWER, id_)])
    first = _soon(lambda: _kept(here, id_))
    assert first["reason"].startswith("version_unsupported: version is 2")
    assert here("operations", "show", id_).json["error"]["code"] == "version_unsupported"
    again = here("dead-letters", "replay", first["id"])
    new_id = again.err.split()[-1]
    assert new_id != id_
    second = _soon(lambda: _kept(here, new_id))
    assert _kept(here, id_) is None
    assert here("dead-letters", "drop", second["id"]).code == 0
    store.close()


def _kept(here: Cli, id_: str) -> Any:
    dead_letters = here("dead-letters", "list").json
    return next(
        (dead_letter for dead_letter in dead_letters if dead_letter["headers"].get("id") == id_),
        None,
    )


def _soon(look: Callable[[], Any]) -> Any:
    limit = Limit(10)
    while (found := look()) is None:
        assert not limit.over
        time.sleep(0.05)
    return found
