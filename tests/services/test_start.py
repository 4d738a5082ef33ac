"""What keeps a process from starting is one sentence, and says who is to mend what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection
from sqlalchemy import create_engine, make_url, text
from structlog.testing import capture_logs

from conductor.cli.commands.database import prepared
from conductor.exit_codes import AWAY, WRONG, exit_code
from conductor.processes.state_folders import make_folder
from conductor.settings import Settings
from models.errors import ConductorError, Rejected, Unreachable
from models.tables.schema_upgrade import check_ready, upgrade
from tasks.app import make_app
from tasks.consuming.task_worker import check_broker
from tasks.routing import host_queue
from tests.limits import wait_for


@pytest.fixture(scope="module")
def ready(fresh_database: Callable[[], str]) -> str:
    url = fresh_database()
    upgrade(url)
    return url


@pytest.fixture
def reader(ready: str) -> Iterator[str]:
    """Yield the URL of a role that may read every table, and write none."""
    name = f"reader_{make_url(ready).database}"
    engine = create_engine(ready, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'CREATE ROLE "{name}" LOGIN'))
        connection.execute(text(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{name}"'))
    yield make_url(ready).set(username=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f'DROP OWNED BY "{name}"'))
        connection.execute(text(f'DROP ROLE "{name}"'))
    engine.dispose()


def refusal(url: str) -> ConductorError:
    with pytest.raises(ConductorError) as caught:
        check_ready(url)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_database_with_our_tables_and_a_role_that_writes_them_is_ready(ready: str) -> None:
    check_ready(ready)


def test_a_database_that_does_not_exist_or_does_not_answer_is_away(ready: str) -> None:
    for wrong in (
        make_url(ready).set(database="nonesuch"),
        make_url(ready).set(port=1),
        make_url(ready).set(username="nobody_at_all"),
    ):
        error = refusal(wrong.render_as_string(hide_password=False))
        assert isinstance(error, Unreachable)
        assert exit_code(error) == AWAY


def test_a_database_without_tables_or_with_older_ones_asks_for_the_upgrade(
    fresh_database: Callable[[], str],
) -> None:
    url = fresh_database()
    error = refusal(url)
    assert "has no tables" in error.message
    upgrade(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    error = refusal(url)
    assert "has tables of revision 0001" in error.message
    assert "conductor db upgrade" in error.message
    assert exit_code(error) == AWAY


def test_tables_of_a_later_version_are_refused(fresh_database: Callable[[], str]) -> None:
    url = fresh_database()
    upgrade(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    error = refusal(url)
    assert (error.code, exit_code(error)) == ("database_newer", WRONG)


def test_a_role_that_may_not_write_is_refused(reader: str) -> None:
    error = refusal(reader)
    assert (error.code, exit_code(error)) == ("database_role", WRONG)


@pytest.mark.parametrize("part", ["password", "vhost"])
def test_a_broker_that_refuses_the_account_or_the_vhost_is_said_at_once(
    broker_url: str, part: str
) -> None:
    before, _, vhost = broker_url.rpartition("/")
    url = f"{before}/nonesuch" if part == "vhost" else broker_url.replace(":guest@", ":wrong@")
    assert url != broker_url, vhost
    with pytest.raises(Rejected) as caught:
        check_broker(make_app(url))
    assert caught.value.code == "broker_refuses"
    assert "wrong@" not in caught.value.message
    assert exit_code(caught.value) == WRONG


def test_a_broker_that_is_not_there_is_waited_for_later() -> None:
    check_broker(make_app("amqp://guest:guest@127.0.0.1:1//"))


def test_a_queue_with_other_arguments_is_named_with_the_argument(
    fresh_vhost: Callable[[], str],
) -> None:
    url = fresh_vhost()
    with Connection(url) as connection:
        connection.channel().queue_declare("conductor", durable=True, auto_delete=False)
    with pytest.raises(Rejected) as caught:
        check_broker(make_app(url))
    assert caught.value.code == "topology_differs"
    assert "queue 'conductor'" in caught.value.message
    assert "x-" in caught.value.message
    assert exit_code(caught.value) == WRONG


def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("")
    for path in (file / "below", Path("/proc/nonesuch/h")):
        with pytest.raises(Rejected) as caught:
            make_folder(path, "--state-dir")
        assert str(path) in caught.value.message
    with pytest.raises(Rejected, match=r"^CONDUCTOR_STATE_DIR is "):
        prepared(Settings(state_dir=file / "below"))


def stood_by(app: Celery) -> Any:
    """Return what a worker of h1 that starts now says of standing by, None if it does not."""
    with capture_logs() as logs:
        check_broker(app, ["h1"])
    return next((line for line in logs if line["log_level"] == "warning"), None)


def test_a_second_worker_of_a_host_says_that_it_stands_by(fresh_vhost: Callable[[], str]) -> None:
    url = fresh_vhost()
    app = make_app(url)
    assert stood_by(app) is None
    with Connection(url) as first, first.Consumer([host_queue("h1")]):
        said = wait_for(lambda: stood_by(app), "word of the first consumer")
    assert said["host"] == "h1"
    assert "another worker reads compute_h1" in said["reason"]
