"""Flavors, images, aggregates, zones, server groups and quotas: created, shown, listed, deleted."""

from typing import Any

import pytest

from tests.cli.running import Cli, one_line

SPECS = {"aggregate_instance_extra_specs:a": "c=d"}
KINDS: list[tuple[str, str, tuple[object, ...], dict[str, Any]]] = [
    (
        "flavors",
        "f1",
        (
            "--vcpus",
            2,
            "--memory-mb",
            512,
            "--root-gb",
            3,
            "--extra-spec",
            "aggregate_instance_extra_specs:a=c=d",
        ),
        {"name": "f1", "vcpus": 2, "memory_mb": 512, "root_gb": 3, "extra_specs": SPECS},
    ),
    (
        "images",
        "i1",
        ("--name", "One", "--property", "hw_numa_nodes=2", "--min-disk-gb", 1),
        {"id": "i1", "name": "One", "properties": {"hw_numa_nodes": "2"}, "min_disk_gb": 1},
    ),
    (
        "aggregates",
        "a1",
        ("--host", "alpha", "--host", "beta", "--metadata", "ssd=true"),
        {"name": "a1", "hosts": ["alpha", "beta"], "metadata": {"ssd": "true"}},
    ),
    ("zones", "z1", ("--host", "alpha"), {"name": "z1", "hosts": ["alpha"]}),
    (
        "server-groups",
        "g1",
        ("--policy", "soft-anti-affinity", "--max-per-host", 2),
        {"name": "g1", "policy": "soft-anti-affinity", "max_server_per_host": 2},
    ),
    ("quotas", "p1", ("--cores", 4), {"name": "p1", "cores": 4, "instances": -1}),
    (
        "quotas",
        "p2",
        ("--class", "PCPU=8", "--user", "ann:cores=2", "--user", "ann:CUSTOM_GOLD=1"),
        {"name": "p2", "cores": -1, "classes": {"PCPU": 8}},
    ),
]


@pytest.mark.parametrize(("group", "name", "options", "expected"), KINDS)
def test_an_entry_lives_from_create_to_delete(
    here: Cli, group: str, name: str, options: tuple[object, ...], expected: dict[str, Any]
) -> None:
    created = here(group, "create", name, *options)
    assert created.code == 0, created.err
    assert expected.items() <= created.json.items()
    assert here(group, "show", name).json == created.json
    assert created.json in here(group, "list").json
    assert created.json in here(group, "list", "-o", "jsonl").lines
    assert name in here(group, "list", "-o", "table").out
    deleted = here(group, "delete", name)
    assert (deleted.code, deleted.out) == (0, "")
    gone = here(group, "show", name)
    assert gone.code == 2
    assert name in gone.err
    assert one_line(gone.err)


@pytest.mark.parametrize(("group", "name"), [(kind[0], kind[1]) for kind in KINDS])
def test_deleting_what_is_not_there_is_refused(here: Cli, group: str, name: str) -> None:
    refused = here(group, "delete", f"{name}-unknown")
    assert refused.code == 2
    assert one_line(refused.err)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("flavors", "create", "f", "--vcpus", 0, "--memory-mb", 1), "vcpus"),
        (("flavors", "create", "f", "--vcpus", 1, "--memory-mb", 10**12), "memory_mb"),
        (("flavors", "create", "", "--vcpus", 1, "--memory-mb", 1), "name"),
        (("flavors", "create", "f", "--vcpus", "x", "--memory-mb", 1), "--vcpus"),
        (
            ("flavors", "create", "f", "--vcpus", 1, "--memory-mb", 1, "--extra-spec", "x"),
            "extra-spec",
        ),
        (("images", "create", "i", "--property", "=v"), "property"),
        (("aggregates", "create", "a", "--host", "nope"), "nope"),
        *(
            (("aggregates", "create", "a", "--host", "alpha", "--metadata", said), named)
            for said, named in (
                ("max_instances_per_host=many", "max_instances_per_host is 'many'"),
                ("max_io_ops_per_host=-1", "max_io_ops_per_host is '-1'"),
                ("room_left_weight_multiplier=nan", "room_left_weight_multiplier is 'nan'"),
                ("rom_left_weight_multiplier=2", "did you mean room_left"),
            )
        ),
        (("zones", "create", "z", "--host", "nope"), "nope"),
        (("server-groups", "create", "g", "--policy", "odd"), "policy"),
        (("quotas", "create", "p", "--cores", -2), "cores"),
        (("quotas", "create", "p", "--class", "PCPU=many"), "PCPU=many"),
        (("quotas", "create", "p", "--class", "PCPU"), "class is PCPU"),
        (("quotas", "create", "p", "--user", "cores=2"), "USER:NAME=N"),
        (("quotas", "create", "p", "--class", "GOLD=1"), "classes is GOLD"),
        (("quotas", "create", "p", "--user", "ann:core=1"), "classes is core"),
        (
            ("server-groups", "create", "g", "--policy", "affinity", "--max-per-host", 2),
            "max_server_per_host is 2",
        ),
        *(
            (("flavors", "create", "f", "--vcpus", 1, "--memory-mb", 1, "--extra-spec", spec), name)
            for spec, name in (
                ("resources1:CUSTOM_CARD=-1", "resources1:CUSTOM_CARD is '-1'"),
                ("resources_A:CARD=1", "resources_A:CARD"),
                ("group_policy=odd", "group_policy is 'odd'"),
                ("trait:CUSTOM_QUICK=maybe", "trait:CUSTOM_QUICK is 'maybe'"),
                ("trait1:CUSTOM_QUICK=maybe", "trait1:CUSTOM_QUICK is 'maybe'"),
            )
        ),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line(
    here: Cli, arguments: tuple[object, ...], named: str
) -> None:
    refused = here(*arguments)
    assert refused.code == 2, refused.out
    assert refused.out == ""
    assert named in refused.err
    assert one_line(refused.err)


def test_a_name_is_taken_once_but_a_quota_is_set_again(here: Cli) -> None:
    assert here("zones", "create", "once").code == 0
    taken = here("zones", "create", "once")
    assert taken.code == 2
    assert "exists" in taken.err
    assert here("quotas", "create", "again", "--cores", 1).code == 0
    assert here("quotas", "create", "again", "--cores", 2).json["cores"] == 2


def test_images_are_cached_on_the_hosts_of_an_aggregate(stocked: Cli) -> None:
    host = stocked("hosts", "list").json[0]["name"]
    assert stocked("aggregates", "create", "warm", "--host", host).code == 0
    asked = stocked("images", "cache", "warm", "cirros", "--wait", "-o", "json")
    assert (asked.code, asked.json["state"]) == (0, "SUCCEEDED")
    assert asked.json["kind"] == "cache_images"


def test_caching_for_an_aggregate_that_nobody_knows_is_a_wrong_request(stocked: Cli) -> None:
    asked = stocked("images", "cache", "cold", "cirros", "--wait")
    assert asked.code == 2
    assert "aggregate is cold: no such aggregate" in asked.err


def test_a_flavor_that_no_build_could_use_is_refused_at_creation(here: Cli) -> None:
    size = ("--vcpus", 2, "--memory-mb", 512)
    for spec in ("hw:cpu_policy =dedicated", "hw:numa_nodes=0", "hw:cpu_realtime_mask=^9999999999"):
        refused = here("flavors", "create", "useless", *size, "--extra-spec", spec)
        assert refused.code == 2, spec
        assert one_line(refused.err)
        assert spec.partition("=")[0] in refused.err
    assert here("flavors", "show", "useless").code == 2


def test_a_server_group_with_members_is_not_deleted_and_names_them(stocked: Cli) -> None:
    assert stocked("server-groups", "create", "kept", "--policy", "anti-affinity").code == 0
    asked = ("--flavor", "small", "--image", "cirros", "--name", "member", "--group", "kept")
    assert stocked("build", *asked, "--wait").code == 0
    member = stocked("instances", "show", "member").json["id"]
    refused = stocked("server-groups", "delete", "kept")
    assert refused.code == 2
    assert one_line(refused.err)
    assert f"name is kept: 1 instance is in this server group ({member})" in refused.err
    assert stocked("server-groups", "show", "kept").code == 0
    assert stocked("delete", member, "--wait").code == 0
    assert stocked("server-groups", "delete", "kept").code == 0
