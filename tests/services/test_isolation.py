"""What the fixtures of the services promise to every other test."""

from collections.abc import Callable

import psycopg
import redis
from kombu import Connection

from tests.environment import isolation, variables


def test_a_run_gets_a_vhost_of_its_own(broker_url: str) -> None:
    with Connection(broker_url) as connection:
        connection.ensure_connection(max_retries=1)
        assert connection.virtual_host.startswith("conductor_test_")


def test_every_fresh_vhost_is_another_one(fresh_vhost: Callable[[], str], broker_url: str) -> None:
    assert fresh_vhost() != broker_url


def test_a_fresh_database_has_no_table(fresh_database: Callable[[], str]) -> None:
    with psycopg.connect(fresh_database().replace("+psycopg", "")) as connection:
        found = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    assert found == (0,)


def test_a_run_gets_an_empty_redis_database_that_is_not_the_default_one(
    service_variables: dict[str, str],
) -> None:
    registry = service_variables[variables.RESULT_URL]
    with isolation.redis_database(registry) as url, redis.Redis.from_url(url) as mine:
        assert not url.endswith("/0")
        assert mine.dbsize() == 0
