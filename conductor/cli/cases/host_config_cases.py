"""Answer what a host's configured CPU sets and reserved pages mean."""

from __future__ import annotations

from typing import Any

from conductor.cli.cases.json_lines import Answer, AnyCase, Line, Question, answered, listed
from models.hardware.host_config import host_config


class HostConfigCase(AnyCase):
    """One question: what these settings set aside."""

    shared: str | None = None
    dedicated: str | None = None
    legacy: str | None = None
    reserved_huge_pages: list[dict[str, Any]] | None = None


def answer_host_config(line: Line, number: int) -> Answer:
    """Return the answer to one line."""
    return answered(line, number, HostConfigCase, _question)


def _question(case: HostConfigCase) -> Question:
    return lambda: _answer(case)


def _answer(case: HostConfigCase) -> Answer:
    config = host_config(case.shared, case.dedicated, case.legacy, case.reserved_huge_pages or ())
    return {
        "shared": listed(config.shared_cpus),
        "dedicated": listed(config.dedicated_cpus),
        "legacy": listed(config.legacy_cpus),
        "reserved_huge_pages": [
            {"node": pages.node, "size": pages.size_kib, "count": pages.count}
            for pages in config.reserved_pages
        ],
    }
