"""Hosts in SQL: what never changes of their hardware apart from what is used of it.

A claim rewrites a host's row, so that row must be small. The NUMA cells without their use are
a row of their own, named by what is in it: hosts that are alike share it, and it is decoded
once per process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import bindparam, select
from typing_extensions import override

from conductor.store import table_metadata
from conductor.store.codecs import to_text
from conductor.store.records import Host
from conductor.store.sql.sql_rows import SqlVersioned
from conductor.store.sql.sql_session import Session
from conductor.store.sql.sql_statements import Params, Statements
from conductor.store.sql.sql_table import SqlTable, insert_into
from models.hardware import HostCell, HostTopology, PagePool
from models.hardware.accounting import without_use
from models.messages.hardware.hardware_json import host_from_row, host_to_json
from models.tables import schema

Cells: TypeAlias = tuple[HostCell, ...]

_TOPOLOGY: Final = table_metadata.HOSTS.fields.index("topology")
_DIGEST_BYTES: Final = 16


class Hardware:
    """The hardware this process has met, by digest; shared by all transactions of a store."""

    def __init__(self, statements: Statements) -> None:
        digest = schema.HARDWARE.c.digest
        self.select = select(digest, schema.HARDWARE.c.body).where(
            statements.among(digest, "digests")
        )
        self.insert = (
            insert_into(schema.HARDWARE, statements.dialect)
            .values(digest=bindparam("v_digest"), body=bindparam("v_body"))
            .inline()
            .on_conflict_do_nothing()
        )
        self.cells: dict[str, Cells] = {}
        self.stored: set[str] = set()
        self._digests: dict[Cells, str] = {}

    def digest_of(self, topology: HostTopology) -> str:
        """Return the name of a host's hardware: equal cells, equal name, in any process."""
        cells = without_use(topology).cells
        digest = self._digests.get(cells)
        if digest is None:
            digest = hashlib.blake2b(
                _body_of(cells).encode(), digest_size=_DIGEST_BYTES
            ).hexdigest()
            self._digests[cells] = digest
            self.cells[digest] = cells
        return digest


class SqlHosts(SqlVersioned[Host]):
    """Hosts, put together from their rows and their hardware."""

    def __init__(self, session: Session, table: SqlTable[Host], hardware: Hardware) -> None:
        super().__init__(session, table)
        self._hardware = hardware

    @override
    def _encoded(self, value: Host, names: tuple[str, ...]) -> Params:
        params = super()._encoded(value, names)
        if "v_topology" in params:
            self._store(params["v_hardware"])
            params["v_topology"] = _use_of(value.topology)
        return params

    @override
    def _decoded(self, rows: Sequence[Sequence[Any]]) -> list[Host]:
        self._load({row[-1] for row in rows} - self._hardware.cells.keys())
        return [self._table.decoded(self._whole(row)) for row in rows]

    def _whole(self, row: Sequence[Any]) -> Sequence[Any]:
        *values, digest = row
        cells = self._hardware.cells[digest]
        values[_TOPOLOGY] = _with_use(cells, values[_TOPOLOGY])
        return values

    def _store(self, digest: str) -> None:
        if digest in self._hardware.stored or digest in self._session.written_hardware:
            return
        body = _body_of(self._hardware.cells[digest])
        self._session.run_later(self._hardware.insert, {"v_digest": digest, "v_body": body})
        self._session.written_hardware |= {digest}

    def _load(self, digests: set[str]) -> None:
        if digests:
            params = {"digests": self._session.statements.listed(sorted(digests))}
            for digest, body in self._session.run(self._hardware.select, params).fetchall():
                self._hardware.cells[digest] = host_from_row(json.loads(body)).cells


def _body_of(cells: Cells) -> str:
    return to_text(host_to_json(HostTopology(cells)))


def _use_of(topology: HostTopology) -> str:
    """Return `[cpu_used, memory_used_mib, pinned CPUs in hex, pages used by pool]` by cell.

    Device pools are here and not with the hardware: few hosts have any, and they count their use.
    """
    use: dict[str, Any] = {
        "cells": [
            [
                cell.cpu_used,
                cell.memory_used_mib,
                f"{cell.pinned_cpus:x}",
                [pool.used for pool in cell.page_pools],
            ]
            for cell in topology.cells
        ]
    }
    if topology.pci_pools:
        use["pci_pools"] = host_to_json(HostTopology((), topology.pci_pools))["pci_pools"]
    return to_text(use)


def _with_use(cells: Cells, text: str | bytes) -> HostTopology:
    use = json.loads(text)
    used = tuple(_used_cell(*pair) for pair in zip(cells, use["cells"], strict=True))
    devices = host_from_row({"cells": (), "pci_pools": use.get("pci_pools", ())})
    return HostTopology(used, devices.pci_pools)


def _used_cell(cell: HostCell, use: Sequence[Any]) -> HostCell:
    cpu_used, memory_used_mib, pinned, pages = use
    pools = tuple(
        PagePool(pool.size_kib, pool.total, used, pool.reserved)
        for pool, used in zip(cell.page_pools, pages, strict=True)
    )
    # Spelled out: this runs for every host of a fleet, and `replace` costs five times as much.
    return HostCell(
        cell.id,
        cell.socket,
        cell.shared_cpus,
        cell.dedicated_cpus,
        cell.memory_mib,
        cell.siblings,
        pools,
        cpu_used,
        memory_used_mib,
        int(pinned, 16),
        cell.physnets,
        cell.tunneled,
    )
