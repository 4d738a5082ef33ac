"""Fleets and request traces from CSV files; what is wrong names file, line, field and rule."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from models.errors import Rejected
from models.hardware import HIGHEST_CPU
from models.units import MIB_PER_GIB

HOST_COLUMNS: Final = ("CPU1", "RAM1", "CPU2", "RAM2")
REQUEST_COLUMNS: Final = ("flavor_vcpus", "flavor_ram", "numa")
RACK_COLUMNS: Final = ("host_id", "rack_id")
STRATEGIES: Final = ("affinity", "anti-affinity", "fault_domain")
MOST_MIB: Final = 2**31 - 1
MOST_CPUS: Final = HIGHEST_CPU + 1


@dataclass(frozen=True, slots=True)
class TraceHost:
    """A host of a trace: free CPUs and free MiB of each of its NUMA cells, and its rack."""

    name: str
    cells: tuple[tuple[int, int], ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request of a trace: its size over so many equal NUMA cells, and its group's rule."""

    vcpus: int
    memory_mib: int
    numa_cells: int
    strategy: str | None = None
    group: str | None = None
    domain: str | None = None

    @property
    def group_name(self) -> str | None:
        """The group that a rule is about: members share strategy and group number."""
        return f"{self.strategy}/{self.group}" if self.strategy else None


def read_hosts(path: Path, racks: Mapping[str, str]) -> list[TraceHost]:
    """Return the hosts, named by their place in the file; raise `Rejected` for a bad line."""
    hosts = []
    for number, row in enumerate(_rows(path, "hosts", HOST_COLUMNS)):
        cells = tuple(
            (row.count(f"CPU{cell}", least=0), row.mib(f"RAM{cell}", least=0)) for cell in (1, 2)
        )
        name = f"host-{number}"
        hosts.append(TraceHost(name, cells, racks.get(name)))
    return hosts


def read_racks(path: Path) -> dict[str, str]:
    """Return host to rack; raise `Rejected` for a bad line, or a host that is in two racks."""
    racks: dict[str, str] = {}
    for row in _rows(path, "racks", RACK_COLUMNS):
        host, rack = row.text("host_id"), row.text("rack_id")
        if racks.setdefault(host, rack) != rack:
            raise row.wrong("host_id", f"a host is in one rack, this one is in {racks[host]} too")
    return racks


def read_requests(path: Path) -> list[TraceRequest]:
    """Return the requests in order; raise `Rejected` for a bad line."""
    return [_request(row) for row in _rows(path, "requests", REQUEST_COLUMNS)]


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a file, whose fields know where they stand."""

    path: Path
    line: int
    values: Mapping[str, str]

    def text(self, field: str) -> str:
        value = self.values.get(field, "").strip()
        if not value:
            raise self.wrong(field, "is missing")
        return value

    def count(self, field: str, *, least: int) -> int:
        text = self.text(field)
        # Its length first: to turn thousands of digits into a number is refused by Python itself.
        plain = text.isascii() and text.isdigit() and len(text) < 10
        if not plain or not least <= int(text) <= MOST_CPUS:
            rule = f"should be a whole number of at least {least}, at most {MOST_CPUS}"
            raise self.wrong(field, rule)
        return int(text)

    def mib(self, field: str, *, least: int) -> int:
        """Return GiB as MiB; a fraction is fine as long as it is whole MiB."""
        rule = f"should be GiB, in whole MiB, at least {least}"
        try:
            mib = Decimal(self.text(field)) * MIB_PER_GIB
            if not least <= mib <= MOST_MIB or mib != int(mib):
                raise self.wrong(field, rule)
        except InvalidOperation:
            raise self.wrong(field, rule) from None
        return int(mib)

    def wrong(self, field: str, rule: str) -> Rejected:
        value = self.values.get(field, "")
        return Rejected(
            "trace_invalid",
            f"{self.path}, line {self.line}: {field} is {value[:40]!r}: {rule}",
            key=field,
            line=self.line,
        )


def _rows(path: Path, what: str, columns: Sequence[str]) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="beyond the last column", restval="")
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                names = ", ".join(missing)
                raise Rejected("trace_invalid", f"{path}, line 1: column {names} is missing")
            for values in reader:
                yield _Row(path, reader.line_num, _flat(values))
    except OSError as error:
        raise Rejected("file_unreadable", f"{what} is {path}: {error.strerror}", key=what) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Rejected("trace_invalid", f"{path} is no CSV text: {error}") from None


def _flat(values: Mapping[str, str | list[str]]) -> dict[str, str]:
    return {key: value for key, value in values.items() if isinstance(value, str)}


def _request(row: _Row) -> TraceRequest:
    size = (
        row.count("flavor_vcpus", least=1),
        row.mib("flavor_ram", least=1),
        row.count("numa", least=1),
    )
    strategy = row.values.get("strategy", "").strip()
    if not strategy:
        return TraceRequest(*size)
    if strategy not in STRATEGIES:
        raise row.wrong("strategy", f"should be one of {', '.join(STRATEGIES)}, or empty")
    domain = row.text("domain") if strategy == "fault_domain" else None
    return TraceRequest(*size, strategy, row.text("group"), domain)
