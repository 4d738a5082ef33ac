"""The import names of the application belong to it alone."""

import ast
import configparser
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest

from tests.environment.variables import CHECKOUT

ONLY_FOR_TYPES = {"_typeshed"}
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


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["libvirt"]
    every = [*project["dependencies"], *extra]
    declared = {_plain(re.split(r"[\[<>=~!; ]", one)[0]) for one in every}
    providers = packages_distributions()
    missing = {
        f"{path.relative_to(CHECKOUT)}: {name}"
        for package in OURS
        for path in (CHECKOUT / package).rglob("*.py")
        for name in _imported(path)
        if name not in OURS | sys.stdlib_module_names | ONLY_FOR_TYPES
        and not declared & {_plain(one) for one in providers.get(name, [])}
    }
    assert not missing, "add these to pyproject.toml and run `make lock`"


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0]


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
