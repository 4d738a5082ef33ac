"""No number in a message is greater than what the database holds; what is, is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from models.errors import Rejected
from models.messages.base import parse
from models.messages.internal import Domain, HostRegistration, InventoryReport, Reply
from models.messages.json_schemas import json_schema
from models.messages.notifications import NOTICES
from tests.messages.message_examples import ALL_EXAMPLES, ALL_KINDS

GREATEST = 2**63 - 1


def unbounded(schema: Any, path: str) -> Iterator[str]:
    """Yield where a schema takes a number of any size; a version is compared and never kept."""
    if isinstance(schema, list):
        for place, item in enumerate(schema):
            yield from unbounded(item, f"{path}.{place}")
    if not isinstance(schema, dict):
        return
    if schema.get("type") in ("integer", "number") and "const" not in schema:
        most = schema.get("maximum")
        least = schema.get("minimum", schema.get("exclusiveMinimum"))
        if (most is None or most > GREATEST or least is None) and not path.endswith(".version"):
            yield path
    for name, item in schema.items():
        yield from unbounded(item, f"{path}.{name}")


@pytest.mark.parametrize("name", [name for name in ALL_KINDS if name not in NOTICES])
def test_every_number_of_a_message_has_bounds(name: str) -> None:
    assert list(unbounded(json_schema(ALL_KINDS[name]), name)) == []


@pytest.mark.parametrize("fence", [-1, 2**63, 2**70, 10**400, 1.5, "1", True, None])
def test_a_fence_that_no_database_holds_is_refused_by_name(fence: Any) -> None:
    example = ALL_EXAMPLES[InventoryReport.task]
    guest = {**example["domains"][0], "fence": fence}
    with pytest.raises(Rejected) as caught:
        parse(InventoryReport, {**example, "domains": [guest]})
    assert caught.value.key == "domains.0.fence"


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e300, -1.0])
def test_a_time_that_no_clock_shows_is_refused(at: float) -> None:
    with pytest.raises(Rejected) as caught:
        parse(InventoryReport, {**ALL_EXAMPLES[InventoryReport.task], "taken_at": at})
    assert caught.value.key == "taken_at"


def test_the_amounts_of_a_host_are_bounded() -> None:
    for fields in ({"disk_gb": 2**63}, {"reserved": {"memory_mib": 2**63}}):
        with pytest.raises(Rejected):
            parse(HostRegistration, {**ALL_EXAMPLES[HostRegistration.task], **fields})


def test_the_token_of_an_answer_is_bounded() -> None:
    example = ALL_EXAMPLES[Reply.task]
    for field in ("sequence", "attempt", "fence"):
        with pytest.raises(Rejected) as caught:
            parse(Reply, {**example, "token": {**example["token"], field: 2**63}})
        assert caught.value.key == f"token.{field}"


def test_the_greatest_fence_that_is_kept_is_read() -> None:
    body = {"instance_id": "i", "fence": GREATEST, "power_state": "running"}
    assert parse(Domain, body).fence == GREATEST
