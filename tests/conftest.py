"""The services that tests may ask for by naming a fixture.

A test that names none of these runs anywhere. A test that names one fails, with one line, where
the service is missing: nothing is skipped.
"""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.environment import isolation, placement, variables
from tests.environment.placement import PlacementServer
from tests.environment.private import StartError

_Corner = TypeVar("_Corner")

# The binding is compiled, and there only where libvirt is: `make hypervisor`.
collect_ignore = [] if importlib.util.find_spec("libvirt") else ["hypervisors"]

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("prove", deadline=None, max_examples=5_000)
settings.load_profile("default")


@pytest.fixture(scope="session")
def service_variables() -> dict[str, str]:
    """Where the services are, by variable name."""
    return variables.current()


@pytest.fixture(scope="session")
def fresh_vhost(service_variables: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Return a function that gives the URL of one more empty RabbitMQ vhost."""
    url = service_variables[variables.BROKER_URL]
    control = service_variables[variables.BROKER_CONTROL]
    yield from _factory(lambda: isolation.rabbitmq_vhost(url, control))


@pytest.fixture(scope="session")
def fresh_database(service_variables: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Return a function that gives the SQLAlchemy URL of one more empty PostgreSQL database."""
    url = service_variables[variables.DATABASE_URL]
    yield from _factory(lambda: isolation.postgresql_database(url))


@pytest.fixture(scope="session")
def broker_url(fresh_vhost: Callable[[], str]) -> str:
    """URL of a RabbitMQ vhost that belongs to this run."""
    return fresh_vhost()


@pytest.fixture(scope="session")
def database_url(fresh_database: Callable[[], str]) -> str:
    """SQLAlchemy URL of a PostgreSQL database that belongs to this run, without any table."""
    return fresh_database()


@pytest.fixture(scope="session")
def redis_url(service_variables: dict[str, str]) -> Iterator[str]:
    """URL of a Redis database number that belongs to this run."""
    url = service_variables[variables.RESULT_URL]
    with ExitStack() as opened:
        yield _entered(opened, isolation.redis_database(url))


@pytest.fixture(scope="session")
def running_placement() -> Iterator[PlacementServer]:
    """Start the OpenStack Placement server of this run."""
    with ExitStack() as opened:
        yield _entered(opened, placement.server())


@pytest.fixture
def placement_server(running_placement: PlacementServer) -> PlacementServer:
    """Return this run's OpenStack Placement server, without providers and consumers."""
    running_placement.empty()
    return running_placement


def _factory(make: Callable[[], AbstractContextManager[str]]) -> Iterator[Callable[[], str]]:
    with ExitStack() as opened:
        yield lambda: _entered(opened, make())


def _entered(opened: ExitStack, corner: AbstractContextManager[_Corner]) -> _Corner:
    try:
        return opened.enter_context(corner)
    except (isolation.ServiceMissingError, StartError) as error:
        missing = str(error)
    # Outside the handler, so that the report is this one line and no chain of causes.
    pytest.fail(f"{missing} (`make services` finds or starts it)", pytrace=False)
