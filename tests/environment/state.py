"""Remember which private servers run, so that a later command can reuse or stop them."""

import dataclasses
import json
from collections.abc import Mapping

from tests.environment.private import Server, base_directory


def read() -> dict[str, Server]:
    """Return the private servers that were started and not stopped, by service name."""
    path = base_directory() / "servers.json"
    if not path.exists():
        return {}
    return {name: Server(**fields) for name, fields in json.loads(path.read_text()).items()}


def write(servers: Mapping[str, Server]) -> None:
    """Replace what is remembered."""
    fields = {name: dataclasses.asdict(server) for name, server in servers.items()}
    (base_directory() / "servers.json").write_text(json.dumps(fields, indent=1))
