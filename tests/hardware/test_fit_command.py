"""The body of `conductor fit`, line by line as the contract has it."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import pytest

from conductor.cli.cases.fit_cases import answer_fit
from conductor.cli.cases.json_lines import answer_lines

Json = dict[str, Any]

CONTRACT_CASE = """
{"id": "any string",
 "host": {"cells": [{"id": 0, "socket": 0,
    "cpuset": [0,1], "pcpuset": [2,3], "memory": 4096,
    "siblings": [[0,2],[1,3]],
    "mempages": [[4, 1048576, 0, 0]],
    "cpu_usage": 0, "memory_usage": 0, "pinned_cpus": [],
    "network_metadata": {"physnets": ["physnet0"], "tunneled": false}}]},
 "flavor": {"name": "f", "vcpus": 2, "memory_mb": 1024,
            "extra_specs": {"hw:cpu_policy": "dedicated"}},
 "image": {"properties": {}},
 "limits": {"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.5,
            "network_metadata": {"physnets": [], "tunneled": false}},
 "pack": false}
"""

CONTRACT_ANSWER = """
{"id": "any string",
  "guest": {"cells": [{"id": 0, "cpuset": [], "pcpuset": [0,1], "memory": 1024,
     "pagesize": null, "cpu_policy": "dedicated", "cpu_thread_policy": null}],
     "emulator_threads_policy": null},
  "placement": {"cells": [{"id": 0, "host_cell": 0, "cpuset": [], "pcpuset": [0,1],
     "memory": 1024, "pagesize": null, "cpu_pinning": {"0": 2, "1": 3}, "cpuset_reserved": []}]},
  "host_after": {"cells": [{"id": 0, "cpu_usage": 0, "memory_usage": 1024,
     "mempages": [[4, 1048576, 262144, 0]], "pinned_cpus": [2,3]}]}}
"""


def case(**changes: Any) -> Json:
    """Return the contract's case with top-level fields replaced; None takes a field away."""
    body: Json = copy.deepcopy(json.loads(CONTRACT_CASE))
    body.update(changes)
    return {key: value for key, value in body.items() if value is not None}


def flavor(vcpus: int = 2, memory_mb: int = 1024, **extra_specs: str) -> Json:
    specs = {f"hw:{key}": value for key, value in extra_specs.items()}
    return {"name": "f", "vcpus": vcpus, "memory_mb": memory_mb, "extra_specs": specs}


def ask(body: Json) -> Json:
    return answer_fit(json.dumps(body), 1)


def run(*lines: str) -> list[Json]:
    out = io.StringIO()
    answer_lines(lines, out, answer_fit)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_contracts_example_is_answered_as_the_contract_says() -> None:
    assert ask(case()) == json.loads(CONTRACT_ANSWER)


def test_a_request_without_topology_is_answered_with_a_null_guest() -> None:
    assert ask(case(flavor=flavor())) == {"id": "any string", "guest": None}


def test_a_rejection_names_code_key_and_rule() -> None:
    answer = ask(
        case(
            flavor=flavor(cpu_policy="shared"), image={"properties": {"hw_cpu_policy": "dedicated"}}
        )
    )
    assert set(answer) == {"id", "rejected"}
    assert answer["rejected"]["code"] == "cpu_policy_conflict"
    assert answer["rejected"]["key"] == "hw:cpu_policy"
    assert "dedicated" in answer["rejected"]["message"]


def test_a_misfit_has_a_reason_with_need_and_have_for_each_pair_of_cells() -> None:
    answer = ask(case(flavor=flavor(4, cpu_policy="dedicated")))
    assert answer["placement"] is None
    assert answer["misfit"]["code"] == "no_host_cell_fits"
    assert answer["misfit"]["cells"] == [
        {
            "guest_cell": 0,
            "host_cell": 0,
            "code": "not_enough_dedicated_cpus",
            "need": 4,
            "have": 2,
        }
    ]
    assert "host_after" not in answer


def test_a_ready_guest_needs_no_flavor_and_image() -> None:
    ready = json.loads(CONTRACT_ANSWER)["guest"]
    assert ask(case(flavor=None, image=None, guest=ready)) == json.loads(CONTRACT_ANSWER)


def test_the_answers_placement_can_be_given_back_first() -> None:
    first = ask(case())
    host = case()["host"]
    host["cells"][0].update(first["host_after"]["cells"][0])
    assert ask(case(host=host))["placement"] is None
    assert ask(case(host=host, release=first["placement"])) == json.loads(CONTRACT_ANSWER)


@pytest.mark.parametrize("told_by", ["cpuset_blocked", "cpu_thread_policy"])
def test_giving_back_an_isolated_guest_frees_the_blocked_siblings(told_by: str) -> None:
    host = case()["host"]
    host["cells"][0]["cpuset"] = host["cells"][0]["pcpuset"] = [0, 1, 2, 3]
    body = case(host=host, flavor=flavor(cpu_policy="dedicated", cpu_thread_policy="isolate"))
    first = ask(body)
    assert first["placement"]["cells"][0]["cpuset_blocked"] == [2, 3]
    assert first["host_after"]["cells"][0]["pinned_cpus"] == [0, 1, 2, 3]
    host["cells"][0].update(first["host_after"]["cells"][0])
    returned = copy.deepcopy(first["placement"])
    if told_by == "cpu_thread_policy":
        del returned["cells"][0]["cpuset_blocked"]
        returned["cells"][0]["cpu_thread_policy"] = "isolate"
    assert ask({**body, "host": host, "release": returned}) == first


def test_giving_back_what_is_not_there_is_rejected() -> None:
    answer = ask(case(release=json.loads(CONTRACT_ANSWER)["placement"]))
    assert answer["rejected"]["code"] == "cpu_unpinning_invalid"


def test_device_requests_take_their_policy_from_the_flavor_where_they_have_none() -> None:
    host = case()["host"]
    pool: Json = {"numa_node": None, "count": 1, "vendor_id": "8086", "product_id": "1", "tags": {}}
    host["pci_pools"] = [pool]
    requests = [{"id": "1", "count": 1, "spec": [{"vendor_id": "8086"}], "numa_policy": None}]
    legacy = case(host=host, pci_requests=requests)
    assert ask(legacy)["placement"] is not None
    near = flavor(cpu_policy="dedicated", pci_numa_affinity_policy="required")
    assert ask({**legacy, "flavor": near})["misfit"]["code"] == "devices_not_local"


def test_absent_and_null_optional_fields_mean_the_same() -> None:
    cell = {"id": 0, "cpuset": [0, 1], "pcpuset": [2, 3], "memory": 4096, "siblings": []}
    bare = {"host": {"cells": [cell]}, "flavor": flavor(cpu_policy="dedicated")}
    full = {
        **bare,
        "id": None,
        "image": None,
        "limits": None,
        "pci_requests": None,
        "release": None,
    }
    assert ask(bare) == ask(full)
    assert ask(bare)["placement"]["cells"][0]["cpu_pinning"] == {"0": 2, "1": 3}


def test_lines_are_answered_in_order_and_a_malformed_one_ends_nothing() -> None:
    good = json.dumps(json.loads(CONTRACT_CASE))
    answers = run(good + "\n", "{nonsense\n", '{"id": "half"}\n', "\n", good)
    assert [answer.get("error", {}).get("line") for answer in answers] == [None, 2, 3, None]
    assert answers[0] == answers[3] == json.loads(CONTRACT_ANSWER)
    assert answers[1]["id"] is None
    assert answers[2]["id"] == "half"


def test_an_id_that_is_no_unicode_is_given_back_as_it_came() -> None:
    (answer,) = run('{"id": "\\ud800"}')
    assert answer["id"] == "\ud800"


def test_answers_are_written_as_lines_arrive() -> None:
    out = io.StringIO()
    written: list[int] = []

    def lines() -> Any:
        for _ in range(3):
            written.append(out.getvalue().count("\n"))
            yield json.dumps(case())

    answer_lines(lines(), out, answer_fit)
    assert written == [0, 1, 2]


def changed(path: str, value: Any) -> Json:
    """Return the contract's case with the field at a dotted path replaced or, if None, removed."""
    body = case()
    *parents, last = path.split(".")
    place: Any = body
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("host", None),
        ("host.cells", None),
        ("host.cells.0.id", -1),
        ("host.cells.0.id", "0"),
        ("host.cells.0.memory", 4096.5),
        ("host.cells.0.memory", True),
        ("host.cells.0.cpuset", [-1]),
        ("host.cells.0.cpuset", [10**9]),
        ("host.cells.0.cpuset", "0-3"),
        ("host.cells.0.pcpuset", [2.5]),
        ("host.cells.0.mempages", [[4, 10]]),
        ("host.cells.0.mempages", [[0, 10, 0, 0]]),
        ("host.cells.0.mempages", [[4, 10, 0, 0], [4, 10, 0, 0]]),
        ("host.cells.0.siblings", [[0, 2], [2, 3]]),
        ("host.cells.0.colour", "red"),
        ("flavor", None),
        ("flavor.vcpus", None),
        ("flavor.vcpus", 0),
        ("flavor.vcpus", 10**9),
        ("flavor.memory_mb", "1024"),
        ("flavor.extra_specs", ["hw:cpu_policy"]),
        ("flavor.extra_specs", {"hw:cpu_policy": None}),
        ("image", []),
        ("image.properties", "none"),
        ("limits.cpu_allocation_ratio", -1),
        ("limits.ram_allocation_ratio", float("nan")),
        ("pack", "yes"),
        ("guest", {"cells": []}),
        ("release", {"cells": [{"id": 0}]}),
        ("pci_requests", [{"count": 0}]),
    ],
)
def test_a_case_of_the_wrong_shape_is_answered_with_its_line_and_field(
    path: str, value: Any
) -> None:
    answer = answer_fit(json.dumps(changed(path, value)), 7)
    assert set(answer) == {"id", "error"}, answer
    assert answer["id"] == "any string"
    assert answer["error"]["line"] == 7
    assert path.rsplit(".", 1)[-1] in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]


@pytest.mark.parametrize(
    "line", ["[1]", "null", "3", '"text"', "\udcff", "[" * 100_000, '{"id": 1', '{"id": [1]}', "\0"]
)
def test_a_line_that_is_no_case_at_all_is_an_error_too(line: str) -> None:
    answer = answer_fit(line, 1)
    assert answer["error"]["line"] == 1
    json.dumps(answer)


@pytest.mark.parametrize(
    "change",
    [
        {"id": 0},
        {"cpuset": [0]},
        {"cpu_policy": "shared"},
        {"cpu_policy": None},
        {"pagesize": 0},
        {"pagesize": -4},
        {"cpu_policy": "own"},
    ],
)
def test_a_ready_guest_that_contradicts_itself_is_an_error(change: Json) -> None:
    cell = json.loads(CONTRACT_ANSWER)["guest"]["cells"][0]
    other = {**cell, "id": 1, "pcpuset": [2], **change}
    answer = ask(case(flavor=None, guest={"cells": [cell, other]}))
    assert "error" in answer


def test_two_cells_of_one_id_or_sharing_a_cpu_are_no_host() -> None:
    cell = case()["host"]["cells"][0]
    for change in ({"cpuset": [4], "pcpuset": [5]}, {"id": 1}):
        answer = ask(case(host={"cells": [cell, {**cell, **change}]}))
        assert "error" in answer


def test_an_image_property_outside_its_enumeration_is_refused_even_where_unused() -> None:
    answer = ask(case(flavor=flavor(), image={"properties": {"hw_tpm_model": "dtpm"}}))
    assert answer["rejected"]["key"] == "hw_tpm_model"
