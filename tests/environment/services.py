"""Decide, for each service, whether to use the one that answers or to start one of our own."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.environment import containers, private, probes, state, variables
from tests.environment.probes import Answers, Silent, Verdict

INSTALL_TIMEOUT_S = 600


@dataclass(frozen=True)
class Service:
    """One service that the tests need."""

    name: str
    url_variable: str
    variables: Sequence[str]
    probe: Callable[[Mapping[str, str]], Verdict]
    package: str
    program: str

    @property
    def dictated(self) -> bool:
        """Whether the environment says which server to use."""
        return bool(os.environ.get(self.url_variable))


@dataclass(frozen=True)
class Found:
    """A service that answers: its variables, and in words how it came to be there."""

    values: Mapping[str, str]
    how: str


def administrable_rabbitmq(values: Mapping[str, str]) -> Verdict:
    """Accept a broker only if we may create vhosts on it, as the tests do."""
    verdict = probes.rabbitmq(values[variables.BROKER_URL])
    if isinstance(verdict, Silent):
        return verdict
    command = [*shlex.split(values[variables.BROKER_CONTROL]), "-q", "list_vhosts"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        _, port = probes.address(values[variables.BROKER_URL], 5672)
        return Silent(f"the broker on port {port} answers, but `{command[0]}` may not manage it")
    return Answers()


SERVICES = (
    Service(
        "RabbitMQ",
        variables.BROKER_URL,
        (variables.BROKER_URL, variables.BROKER_CONTROL),
        administrable_rabbitmq,
        "rabbitmq-server",
        "/usr/sbin/rabbitmq-server",
    ),
    Service(
        "PostgreSQL",
        variables.DATABASE_URL,
        (variables.DATABASE_URL,),
        lambda values: probes.postgresql(values[variables.DATABASE_URL]),
        "postgresql",
        "/usr/bin/pg_ctlcluster",
    ),
    Service(
        "Redis",
        variables.RESULT_URL,
        (variables.RESULT_URL,),
        lambda values: probes.redis(values[variables.RESULT_URL]),
        "redis-server",
        "/usr/bin/redis-server",
    ),
)


def running(service: Service, *, private_only: bool) -> Found | Silent:
    """Return the service as it can be used now, without starting anything.

    A URL in the environment is an order: no other server is tried in its place.
    """
    given = {name: os.environ[name] for name in service.variables if os.environ.get(name)}
    usual = {name: variables.DEFAULTS[name] for name in service.variables}
    if service.dictated:
        return _asked(service, {**usual, **given}, f"as {service.url_variable} says, on")
    ours = state.read().get(service.name)
    tried: list[Found | Silent] = []
    if not private_only:
        tried.append(_asked(service, usual, "used as found on"))
    if ours is not None:
        tried.append(_asked(service, ours.values, "private, still running on"))
    for answer in tried:
        if isinstance(answer, Found):
            return answer
    return tried[0] if tried else Silent("no private one runs")


def start(missing: Sequence[Service], report: Callable[[str], None]) -> dict[str, Found]:
    """Start the services that nobody answers for.

    Raises StartError naming what a person has to do.
    """
    absent = [service for service in missing if shutil.which(service.program) is None]
    if absent and not may_install():
        if not containers.available():
            packages = " ".join(service.package for service in absent)
            raise private.StartError(
                f"not installed: sudo apt-get install {packages}, or start Docker, and run again"
            )
        return _remember(containers.start([service.name for service in missing]), "in a container")
    if absent:
        install([service.package for service in absent], report)
    directory = private.base_directory()
    started: dict[str, Found] = {}
    for service in missing:
        _stop_what_is_left(service)
        server = private.STARTERS[service.name](directory)
        started |= _remember({service.name: server}, "privately")
    return started


def _asked(service: Service, values: Mapping[str, str], how: str) -> Found | Silent:
    verdict = service.probe(values)
    if isinstance(verdict, Silent):
        return verdict
    host, port = probes.address(values[service.url_variable], 0)
    return Found(values, f"{how} {host}:{port}")


def _stop_what_is_left(service: Service) -> None:
    """One of ours that no longer answers may still hold its folder."""
    left = state.read().get(service.name)
    if left is not None:
        private.stop(left.stop)


def _remember(servers: Mapping[str, private.Server], where: str) -> dict[str, Found]:
    state.write({**state.read(), **servers})
    return {
        name: Found(server.values, f"started {where} on 127.0.0.1:{server.port}")
        for name, server in servers.items()
    }


def may_install() -> bool:
    """Say whether installing packages is possible and ours to do."""
    return os.getuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str], report: Callable[[str], None]) -> None:
    """Install Debian packages; raise `StartError` with the last line of what went wrong."""
    report(f"installing {', '.join(packages)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
    ):
        try:
            subprocess.run(
                command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=INSTALL_TIMEOUT_S, env=environment,
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            lines = error.stderr.strip().splitlines() or ["no reason given"]
            raise private.StartError(f"{shlex.join(command)}: {lines[-1]}") from error
        except subprocess.TimeoutExpired as error:
            raise private.StartError(str(error)) from error
