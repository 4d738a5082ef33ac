"""Checks the placements of a simulation from its files alone; knows nothing of the scheduler.

Replays the lines in order over plain numbers: what each NUMA cell has left, which rack and
host each group has been on. Also says whether a request that was refused had a valid host.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Replay:
    """A fleet of two-celled hosts, as the placements so far have left it."""

    def __init__(self, hosts: Path, racks: Path | None) -> None:
        self.left = {
            f"host-{number}": [
                [float(row["CPU1"]), float(row["RAM1"])],
                [float(row["CPU2"]), float(row["RAM2"])],
            ]
            for number, row in enumerate(rows_of(hosts))
        }
        self.rack = {row["host_id"]: row["rack_id"] for row in rows_of(racks)} if racks else {}
        self.members: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    def wrong(self, request: Row, line: dict[str, Any]) -> Iterator[str]:
        """Apply one answer and yield what is wrong with it."""
        where = f"request {line['request']}"
        if line["host"] is None:
            if not line.get("reason"):
                yield f"{where}: refused without a reason"
            valid = next((host for host in self.left if self.is_valid(request, host)), None)
            if valid is not None:
                yield f"{where}: refused ({line.get('reason')}) though {valid} was valid"
            return
        host, cells = line["host"], line["cells"]
        if host not in self.left:
            yield f"{where}: there is no {host}"
            return
        if not self.keeps_rule(request, host):
            yield f"{where}: {host} breaks its {request['strategy']} rule"
        count = int(request["numa"])
        if len(cells) != count or len(set(cells)) != count or not set(cells) <= {0, 1}:
            yield f"{where}: {count} NUMA cells asked for, placed on {cells}"
            return
        for cell in cells:
            self.left[host][cell][0] -= float(request["flavor_vcpus"]) / count
            self.left[host][cell][1] -= float(request["flavor_ram"]) / count
            if min(self.left[host][cell]) < 0:
                yield f"{where}: {host} cell {cell} is over-committed: {self.left[host][cell]}"
        if request.get("strategy"):
            key = (request["strategy"], request["group"])
            self.members[key].append((host, request["domain"]))

    def is_valid(self, request: Row, host: str) -> bool:
        """Say whether the request could have gone to the host."""
        count = int(request["numa"])
        cpus, memory = float(request["flavor_vcpus"]) / count, float(request["flavor_ram"]) / count
        fitting = sum(left[0] >= cpus and left[1] >= memory for left in self.left[host])
        return fitting >= count and self.keeps_rule(request, host)

    def keeps_rule(self, request: Row, host: str) -> bool:
        """Say whether the host is one that the request's group rule leaves."""
        strategy = request.get("strategy")
        if not strategy:
            return True
        members = self.members[strategy, request["group"]]
        if strategy == "anti-affinity":
            return all(host != other for other, _ in members)
        rack = self.rack[host]
        if strategy == "affinity":
            return all(rack == self.rack[other] for other, _ in members)
        return all(
            rack != self.rack[other] or domain == request["domain"] for other, domain in members
        )


def complaints(
    hosts: Path, requests: Path, placements: Path, racks: Path | None = None
) -> list[str]:
    """Return everything wrong with a placements file, its groups honoured if there are racks."""
    replay = Replay(hosts, racks)
    asked = rows_of(requests)
    if racks is None:
        asked = [{**row, "strategy": ""} for row in asked]
    lines = [json.loads(line) for line in placements.read_text(encoding="utf-8").splitlines()]
    wrong = []
    if [line["request"] for line in lines] != list(range(len(asked))):
        wrong.append(f"{len(lines)} lines answer {len(asked)} requests, or not in order")
    for request, line in zip(asked, lines, strict=False):
        wrong += replay.wrong(request, line)
    return wrong
