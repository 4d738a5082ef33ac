"""The change feed, over every store: what others commit comes once, own writes are skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conductor.store import Follower, Host, Store, Versioned
from models.errors import Unreachable
from tests.contracts.store import records


def test_a_follower_skips_what_its_process_wrote_and_sees_what_others_write_over_it(
    store: Store,
) -> None:
    follower: Follower[Host] = Follower("name", lambda host: host.version)
    first = records.a_host("a")
    with store.begin() as uow:
        uow.hosts.add(first)
    assert list(changed(store, follower)) == ["a"]
    assert changed(store, follower) == []

    own = replace(first, version=first.version + 1)
    with store.begin() as uow:
        uow.hosts.save(own)
    follower.note_written([own])
    follower.note_written([first])
    assert changed(store, follower) == []

    with store.begin() as uow:
        uow.hosts.save(replace(own, version=own.version + 1))
    assert changed(store, follower) == ["a"]


def test_what_could_not_be_read_comes_with_the_next_call(store: Store) -> None:
    follower: Follower[Host] = Follower("name", lambda host: host.version)
    first = records.a_host("a")
    with store.begin() as uow:
        uow.hosts.add(first)
    assert changed(store, follower) == ["a"]
    with store.begin() as uow:
        uow.hosts.save(replace(first, version=first.version + 1))
    with store.read() as uow, pytest.raises(Unreachable):
        follower.changes(_Unreadable(uow.hosts))  # type: ignore[arg-type]  # forwards the rest
    assert changed(store, follower) == ["a"]


class _Unreadable:
    """Hosts whose versions can be read, and then nothing more: the database goes away between."""

    def __init__(self, hosts: Versioned[Host]) -> None:
        self._hosts = hosts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosts, name)

    def where(self, **_: Any) -> list[Host]:
        raise Unreachable("database_unreachable", "the database went away")


def changed(store: Store, follower: Follower[Host]) -> list[str]:
    with store.read() as uow:
        return list(follower.changes(uow.hosts))
