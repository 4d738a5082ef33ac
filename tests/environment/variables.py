"""The variables that tell the tests where the services are.

They carry no CONDUCTOR_ prefix, since the product refuses variables of its own prefix that it
does not know.
"""

import os
from collections.abc import Mapping
from pathlib import Path

BROKER_URL = "TEST_BROKER_URL"
BROKER_CONTROL = "TEST_BROKER_CONTROL"
DATABASE_URL = "TEST_DATABASE_URL"
RESULT_URL = "TEST_RESULT_URL"

DEFAULTS: Mapping[str, str] = {
    BROKER_URL: "amqp://guest:guest@127.0.0.1:5672/",
    BROKER_CONTROL: "rabbitmqctl",
    DATABASE_URL: "postgresql+psycopg://postgres@127.0.0.1:5432/postgres",
    RESULT_URL: "redis://127.0.0.1:6379/0",
}

CHECKOUT = Path(__file__).resolve().parents[2]
ENV_FILE = CHECKOUT / ".services.env"


def current() -> dict[str, str]:
    """Return every variable: from the environment, else from the last `ensure`, else a default."""
    given = {name: os.environ[name] for name in DEFAULTS if os.environ.get(name)}
    return {**DEFAULTS, **read(ENV_FILE), **given}


def read(path: Path) -> dict[str, str]:
    """Return the variables that `write` left in a file, none when there is no file."""
    if not path.exists():
        return {}
    pairs = (line.partition("=") for line in path.read_text().splitlines())
    return {name: value for name, _, value in pairs if name in DEFAULTS}


def write(path: Path, values: Mapping[str, str]) -> None:
    """Write variables one a line, as NAME=value."""
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(values.items())))
