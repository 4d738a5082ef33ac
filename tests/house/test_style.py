"""The rules of the house that no linter knows. Each failure names the place and what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment.variables import CHECKOUT

FOLDERS = ("conductor", "workers", "models", "tasks", "tests")
LONGEST_FILE = 400
LONGEST_FUNCTION = 40
FILES = sorted(path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*.py"))
# A migration is a list of columns, not a story; tests may tell a long one.
SHIPPED = [
    path for path in FILES if not {"tests", "migrations"} & set(path.relative_to(CHECKOUT).parts)
]

SILENCED = re.compile(r"#\s*(type:\s*ignore|noqa|fmt:\s*off)")
REASONED = re.compile(r"#\s*(type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+|fmt:\s*off)\W+\w+\W+\w+")
PATCHING = re.compile(r"\bmock\.patch\b|from unittest import mock|import unittest\.mock|\bmocker\b")


def test_no_file_is_so_long_that_it_is_two_things() -> None:
    long = {_name(path): lines for path in FILES if (lines := _lines(path)) > LONGEST_FILE}
    assert not long, "split these files"


def test_no_function_is_so_long_that_its_story_is_lost() -> None:
    long = {
        f"{_name(path)}:{function.lineno} {function.name}": lines
        for path in SHIPPED
        for function in _functions(path)
        if (lines := _body_lines(function)) > LONGEST_FUNCTION
    }
    assert not long, "name the parts of these functions"


def test_whoever_silences_a_check_says_why_on_the_line() -> None:
    silent = [
        place
        for path in FILES
        if path != Path(__file__)
        for place, line in _numbered(path)
        if SILENCED.search(line) and not REASONED.search(line)
    ]
    assert not silent, "add the reason: `# noqa: X123  # because ...`"


def test_our_own_code_is_never_patched_by_tests() -> None:
    patched = [
        place
        for path in FILES
        if path != Path(__file__)
        for place, line in _numbered(path)
        if PATCHING.search(line)
    ]
    assert not patched, "use the port's in-memory twin"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_code_says_what_lives_there(folder: str) -> None:
    silent = [
        _name(path)
        for path in sorted((CHECKOUT / folder).rglob("__init__.py"))
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent, "give these packages a docstring"


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count from the first statement, so that a signature and a docstring may be as long."""
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    first = function.body[1 if documented else 0]
    return (function.end_lineno or first.lineno) - first.lineno + 1


def _numbered(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        yield f"{_name(path)}:{number}", line


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))
