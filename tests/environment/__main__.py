"""`python3 -m tests.environment ensure [--private] | stop`."""

import argparse
import os
import shutil
import sys

from tests.environment import browser, placement, private, services, state, variables
from tests.environment.probes import Silent


def main() -> int:
    """Run one command; exit 1, with one line, where a service cannot be had."""
    parser = argparse.ArgumentParser(prog="tests.environment", description=__doc__)
    parser.add_argument("command", choices=("ensure", "stop"))
    parser.add_argument(
        "--private",
        action="store_true",
        default=os.environ.get("TEST_SERVICES") == "private",
        help="leave the servers on the usual ports alone (also: TEST_SERVICES=private)",
    )
    chosen = parser.parse_args()
    try:
        return stop() if chosen.command == "stop" else ensure(private_only=chosen.private)
    except private.StartError as error:
        print(f"services: {error}", file=sys.stderr)
        return 1


def ensure(*, private_only: bool) -> int:
    """Find or start every service, say which it was, and write the variables file."""
    found: dict[str, services.Found] = {}
    missing: list[services.Service] = []
    for service in services.SERVICES:
        answer = services.running(service, private_only=private_only)
        if not isinstance(answer, Silent):
            found[service.name] = answer
        elif service.dictated:
            raise private.StartError(f"{service.name}: {answer.reason}")
        else:
            missing.append(service)
    if missing:
        found |= services.start(missing, say)
    values: dict[str, str] = {}
    for name, service_found in found.items():
        say(f"{name:<11} {service_found.how}")
        values |= service_found.values
    variables.write(variables.ENV_FILE, values)
    browser.ensure(say)
    placement.ensure(say)
    return 0


def stop() -> int:
    """Stop every private server and throw its data away."""
    servers = state.read()
    for command in dict.fromkeys(tuple(server.stop) for server in servers.values()):
        private.stop(command)
    for name, server in servers.items():
        say(f"{name:<11} stopped, was private on 127.0.0.1:{server.port}")
    shutil.rmtree(private.base_directory())
    variables.ENV_FILE.unlink(missing_ok=True)
    return 0


def say(line: str) -> None:
    """Tell a person what happens, at once."""
    print(f"services: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
