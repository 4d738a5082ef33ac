"""Operators watch operations in Flower: through its interface, and on its pages in a browser."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from tests.acceptance.browser import Page, open_page
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import CONTEXT, PINNED, build_body, child_of, instance_of
from tests.services.flowers import Flower, flower_at

NOTE = "canary-note-5d1e"
SECRET = "canary-secret-77ab"
COPY_S = 60
FINAL = ("SUCCESS", "FAILURE", "REVOKED")
Task = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A fleet with a Flower, and the ids of what was asked of it."""

    fleet: Fleet
    flower: Flower
    build: str
    copying: str
    failed: str
    refused: tuple[str, ...]

    def family(self, root: str) -> list[Task]:
        """Return every task that belongs to a request, itself included, once all have ended."""

        def look() -> list[Task] | None:
            found = [t for t in self.flower.tasks().values() if t["root_id"] == root]
            return found if found and all(t["state"] in FINAL for t in found) else None

        tasks: list[Task] = self.fleet.until(look, f"all of {root} to end in Flower", 20)
        return tasks


@pytest.fixture(scope="module")
def scene(shared_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A finished build, a live migration that copies, one that failed, and refused requests."""
    fleet = shared_fleet
    log = tmp_path_factory.mktemp("flower") / "log"
    fleet.restart("compute-alpha", "--habit", f"copy.latency_s={COPY_S}")
    fleet.restart("compute-epsilon", "--habit", "spawn.refused=1")
    with flower_at(fleet.services.broker_url, log) as flower:
        try:
            fleet.start()
            yield _played(fleet, flower)
        finally:
            fleet.heal()
            fleet.clear()


def _played(fleet: Fleet, flower: Flower) -> Scene:
    send = fleet.sender.send
    build = fleet.sender.build(count=2, name="web", metadata={"note": NOTE})
    mover, stayer = (
        fleet.sender.build(PINNED, name=name, host=host)
        for name, host in (("mover", "alpha"), ("stayer", "gamma"))
    )
    for record in fleet.all_ended([build, mover, stayer]):
        assert record.error is None, record.error
    body = {"context": CONTEXT, "instance_id": instance_of(mover), "host": "beta"}
    copying = send("live_migrate_instance", body)
    body = {"context": CONTEXT, "instance_id": instance_of(stayer), "host": "epsilon"}
    failed = send("migrate_instance", body)
    refused = (
        send("build_instances", build_body(admin_password=SECRET)),
        send("build_instances", build_body(metadata={"db_password": SECRET})),
        send("build_instances", build_body(flavor={"vcpus": "many", "token": SECRET})),
    )
    fleet.all_ended([failed, *refused])
    return Scene(fleet, flower, build, copying, failed, refused)


def _arguments(task: Task) -> dict[str, Any]:
    said: dict[str, Any] = ast.literal_eval(task["kwargs"])
    return said


def _ended(task: Task) -> bool:
    return task["state"] in FINAL


def test_a_finished_build_is_one_task_that_says_what_it_built(scene: Scene) -> None:
    task = scene.flower.until(scene.build, _ended, "end")
    assert (task["name"], task["state"]) == ("conductor.build_instances", "SUCCESS")
    said = _arguments(task)
    assert (said["name"], said["image"], said["count"]) == ("web", "img", 2)
    assert instance_of(scene.build, 1) in task["result"]
    assert 0 < task["runtime"] < 60


def test_the_children_of_a_build_hang_from_it_and_end(scene: Scene) -> None:
    tasks = {task["uuid"]: task for task in scene.family(scene.build)}
    parents = {id_: task["parent_id"] for id_, task in tasks.items()}
    for index in range(2):
        child = tasks[child_of(scene.build, index)]
        assert (child["name"], child["state"]) == ("conductor.build_instance", "SUCCESS")
        assert parents[child["uuid"]] == scene.build
        said = _arguments(child)
        assert said["instance_id"] == instance_of(scene.build, index)
        assert said["host"] == scene.fleet.instance(said["instance_id"]).host
        assert "2 vCPUs, 1024 MiB" in said["flavor"]
        (spawn,) = [t for t in tasks.values() if t["parent_id"] == child["uuid"]]
        assert (spawn["name"], spawn["state"]) == ("compute.spawn", "SUCCESS")
        assert spawn["worker"].startswith(f"compute-{said['host']}@")
        assert _arguments(spawn)["host"] == said["host"]
        (reply,) = [t for t in tasks.values() if t["parent_id"] == spawn["uuid"]]
        assert (reply["name"], _arguments(reply)["outcome"]) == ("reports.reply", "done")
    (chosen,) = [t for t in tasks.values() if t["name"] == "scheduler.select_hosts"]
    assert (chosen["state"], chosen["parent_id"]) == ("SUCCESS", scene.build)
    assert chosen["worker"].startswith(("scheduler@", "scheduler-"))


def test_a_live_migration_says_how_far_its_copy_is(scene: Scene) -> None:
    task = scene.flower.until(scene.copying, lambda t: "copied" in t["kwargs"], "copy")
    assert (task["name"], task["state"]) == ("conductor.live_migrate_instance", "DISPATCHED")
    said = _arguments(task)
    assert (said["instance"], said["step"]) == ("mover", "copy")
    assert (said["source"], said["target"]) == ("alpha", "beta")
    assert said["copied"].endswith(" %")
    (copy,) = [t for t in scene.flower.tasks().values() if t["name"] == "compute.copy"]
    assert (copy["state"], copy["parent_id"]) == ("STARTED", scene.copying)
    assert copy["worker"].startswith("compute-alpha@")


def test_a_failed_migration_says_why_in_words(scene: Scene) -> None:
    task = scene.flower.until(scene.failed, _ended, "end")
    assert (task["name"], task["state"]) == ("conductor.migrate_instance", "FAILURE")
    assert task["exception"].startswith(("HostRefused(", "NoValidHost("))
    assert "the simulated hypervisor refuses to spawn" in task["exception"]
    said = _arguments(task)
    assert (said["instance"], said["host"], said["target"]) == ("stayer", "gamma", "epsilon")
    spawns = [t for t in scene.family(scene.failed) if t["name"] == "compute.spawn"]
    assert [t["state"] for t in spawns] == ["FAILURE"]
    assert "HostRefused('simulated_refusal: " in spawns[0]["exception"]


def test_in_a_browser_an_operator_finds_all_of_it(scene: Scene, tmp_path: Path) -> None:
    with open_page(tmp_path / "profile") as page:
        page.go(scene.flower.url_with_login)
        page.go(scene.flower.url + "/tasks?name=conductor.")
        page.until(lambda text: "conductor.live_migrate_instance" in text, "list tasks")
        page.save_picture(tmp_path / "tasks.png")
        _look_at_the_copy(scene, page, tmp_path)
        text = _open(page, scene, scene.build)
        assert "SUCCESS" in text
        assert "'count': 2" in text
        text = _open(page, scene, scene.failed)
        assert "FAILURE" in text
        assert "the simulated hypervisor refuses to spawn" in text
        page.save_picture(tmp_path / "failed.png")


def _look_at_the_copy(scene: Scene, page: Page, pictures: Path) -> None:
    text = _open(page, scene, scene.copying)
    assert "DISPATCHED" in text
    assert "'copied': " in text
    page.save_picture(pictures / "copying.png")
    (copy,) = [t for t in scene.flower.tasks().values() if t["name"] == "compute.copy"]
    link = f"document.querySelector('a[href$=\"/task/{copy['uuid']}\"]')"
    assert page.run(f"return {link} !== null"), "the copy is not linked"
    page.run(f"{link}.click()")
    page.until(lambda text: "compute.copy" in text and "STARTED" in text, "show the copy")


def _open(page: Page, scene: Scene, task_id: str) -> str:
    page.go(f"{scene.flower.url}/task/{task_id}")
    return page.until(lambda text: task_id in text, f"show {task_id}")


def test_what_callers_may_fill_freely_is_neither_shown_nor_logged(scene: Scene) -> None:
    assert scene.fleet.instance(instance_of(scene.build)).request_spec["metadata"] == {"note": NOTE}
    assert NOTE not in str(_everything_in_flower(scene))
    assert NOTE not in _results(scene)
    assert NOTE not in _logs(scene)


def test_a_secret_is_refused_by_name_and_its_value_is_nowhere(scene: Scene) -> None:
    for id_, field in zip(scene.refused, ("admin_password", "db_password", "vcpus"), strict=True):
        task = scene.flower.until(id_, _ended, "end")
        assert task["state"] == "FAILURE"
        assert task["exception"].startswith("Rejected(")
        assert field in task["exception"]
    rows = _database(scene)
    assert all(id_ in rows for id_ in scene.refused)
    for where, text in {
        "Flower": str(_everything_in_flower(scene)),
        "the database": rows,
        "results": _results(scene),
        "logs": _logs(scene),
    }.items():
        assert SECRET not in text, f"in {where}"
    for queue in ("conductor", "scheduler", "reports", "dead_letters"):
        assert scene.fleet.sender.waiting(queue) == 0


def test_a_copy_that_is_called_off_ends_with_all_its_children(scene: Scene) -> None:
    mover = scene.fleet.operation(scene.copying)
    assert mover is not None
    scene.fleet.ended(scene.fleet.sender.ask("delete", mover.instance_id or ""))
    ends = {task["name"]: task["state"] for task in scene.family(scene.copying)}
    assert ends["conductor.live_migrate_instance"] == "FAILURE"
    assert ends["compute.copy"] in ("FAILURE", "REVOKED")


def _everything_in_flower(scene: Scene) -> list[Any]:
    tasks = scene.flower.tasks()
    return [tasks, [scene.flower.task(id_) for id_ in (scene.build, scene.copying, *scene.refused)]]


def _database(scene: Scene) -> str:
    url = scene.fleet.services.database_url.replace("+psycopg", "")
    listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with psycopg.connect(url) as connection:
        names = [row[0] for row in connection.execute(listed)]
        return "\n".join(
            str(row[0])
            for name in names
            for row in connection.execute(f"SELECT t::text FROM {name} AS t")
        )


def _results(scene: Scene) -> str:
    client: Any = Redis.from_url(scene.fleet.services.result_url)
    texts = [str(client.get(key)) for key in client.scan_iter("celery-task-meta-*")]
    client.close()
    return "\n".join(texts)


def _logs(scene: Scene) -> str:
    logs = [member.log for member in scene.fleet.members.values()]
    return "\n".join(log.read_text() for log in (*logs, scene.flower.log))
