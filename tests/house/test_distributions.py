"""The import names of the application belong to it alone."""

import configparser
import tomllib
from importlib.metadata import entry_points, packages_distributions

import pytest

from tests.environment.variables import CHECKOUT

OURS = {"conductor", "models", "tasks", "workers"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_no_other_installed_distribution_claims_an_import_name_of_ours(name: str) -> None:
    claims = packages_distributions()
    assert "celery" in claims, "the installed distributions cannot be read"
    assert set(claims.get(name, [])) <= {"vm-conductor"}


def test_the_command_is_installed() -> None:
    commands = entry_points(group="console_scripts", name="conductor")
    assert [command.value for command in commands] == ["conductor.cli:main"]


def test_the_import_rules_cover_every_package_that_is_shipped() -> None:
    rules = configparser.ConfigParser()
    rules.read(CHECKOUT / ".importlinter")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(rules["importlinter"]["root_packages"].split()) == OURS
    assert set(shipped) == OURS
