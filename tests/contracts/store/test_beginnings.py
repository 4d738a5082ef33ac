"""A record can be asked for by how a text of it begins, as people type ids."""

from __future__ import annotations

from dataclasses import replace

from conductor.store import StartsWith, Store
from tests.contracts.store import records


def test_where_takes_how_a_text_begins(store: Store) -> None:
    with store.begin() as uow:
        for id_ in ("ab1", "ab2", "b%1", "b_2", "bx3", "b\\4"):
            uow.operations.add(records.an_operation(id_, kind=f"of {id_}"))
    with store.read() as uow:
        for text, found in (
            ("ab", ["ab1", "ab2"]),
            ("ab2", ["ab2"]),
            ("b%", ["b%1"]),
            ("b_", ["b_2"]),
            ("b\\", ["b\\4"]),
            ("c", []),
        ):
            assert sorted(r.id for r in uow.operations.where(id=StartsWith(text))) == found
        assert uow.operations.count(id=StartsWith("ab"), kind="of ab1") == 1
        assert len(uow.operations.where(id=StartsWith("b"), limit=2)) == 2


def test_what_is_absent_begins_with_nothing(store: Store) -> None:
    with store.begin() as uow:
        uow.hosts.add(replace(records.a_host("odd"), degraded="deaf"))
        uow.hosts.add(records.a_host("well"))
    with store.read() as uow:
        assert [host.name for host in uow.hosts.where(degraded=StartsWith(""))] == ["odd"]
