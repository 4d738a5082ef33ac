"""Pages and examples say what the code does: generated again, compared, counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor.cli.documents.pages import PAGES
from conductor.operations.operation_registry import OPERATIONS
from models.messages.json_schemas import PUBLIC
from tests.environment.variables import CHECKOUT

EXAMPLES = sorted((CHECKOUT / "examples").glob("*.py"))
OURS = {"conductor", "models", "tasks", "workers", "tests"}
TEN = 10
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SENDS = re.compile(r"\bsend_task\(|\bbasic_publish\(")


def pages() -> Iterator[Path]:
    yield from CHECKOUT.glob("*.md")
    yield from (path for path in (CHECKOUT / "docs").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    written = (CHECKOUT / "docs" / f"{page}.md").read_text()
    how = f"run `conductor docs {page} > docs/{page}.md`"
    assert written == PAGES[page]().rstrip("\n") + "\n", how


def test_the_page_of_messages_has_each_of_them() -> None:
    page = PAGES["messages"]()
    assert all(f"### {name}\n" in page for name in PUBLIC)


def test_the_page_of_operations_has_every_step_and_undo_with_its_sentence() -> None:
    page = PAGES["operations"]()
    for operation in OPERATIONS.values():
        section = page.partition(f"## {operation.kind}\n")[2].partition("\n## ")[0]
        for number, step in enumerate(operation.steps, start=1):
            [row] = [line for line in section.splitlines() if line.startswith(f"| {number} ")]
            assert step.name in row
            assert step.run.__doc__, f"{operation.kind}.{step.name} says nothing"
            assert (f"**{step.name}**" in row) == step.pivot
            if step.run_undo is not None:
                assert f"| {step.run_undo.__name__} | " in row
                assert step.run_undo.__doc__


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_takes_ten_lines_and_nothing_of_ours(example: Path) -> None:
    tree = ast.parse(example.read_text())
    statements = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)][1:]
    assert sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in statements) <= TEN
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not imported & OURS


def test_senders_in_the_documentation_are_the_examples_verbatim() -> None:
    whole = {path.read_text() for path in EXAMPLES}
    without_sentence = {text.partition('"""\n\n')[2] for text in whole}
    shown = {
        path.name: [code for code in SNIPPET.findall(path.read_text()) if SENDS.search(code)]
        for path in pages()
    }
    assert set(shown["senders.md"]) == whole
    assert shown["README.md"]
    codes = {code for codes in shown.values() for code in codes}
    assert codes <= whole | without_sentence, "copy examples/"
