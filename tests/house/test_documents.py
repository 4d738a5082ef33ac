"""Every path and module that a document names exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.environment.variables import CHECKOUT

ROOTS = ("conductor", "models", "tasks", "workers", "tests", "deploy", "docs", "examples")
TRACKED = set(
    subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
)
HISTORY = {"CHANGELOG.md"}
"""What names paths of its time."""
DOCUMENTS = sorted(path for path in TRACKED if path.endswith(".md") and path not in HISTORY)

IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
A_PATH = re.compile(rf"(?:{'|'.join(ROOTS)})/[\w./-]*|[\w/]+\.(?:py|md|sh|yaml)")
A_MODULE = re.compile(rf"(?:{'|'.join(ROOTS[:5])})(?:\.\w+)+")
NO_MODULES = {
    "conductor.filters",
    "conductor.weighers",
    *re.findall(
        r"^#+ `?(conductor\.\w+)", (CHECKOUT / "docs/messages.md").read_text(), re.MULTILINE
    ),
    *(f"conductor.{path.stem}" for path in (CHECKOUT / "conductor/operations").glob("*.py")),
}
"""Names of messages and of entry points, which look like modules and are none."""
A_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named(text: str) -> Iterator[str]:
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from IN_BACKTICKS.findall(prose)


def is_there(document: str, name: str) -> bool:
    """Tell whether a path is there, from the root, or in or below the document's folder."""
    folder = (CHECKOUT / document).parent
    return (CHECKOUT / name).exists() or any(folder.rglob(name.strip("/")))


def is_module(name: str) -> bool:
    """Tell whether a dotted name is a module, or something in one."""
    for parts in (name.split("."), name.split(".")[:-1], name.split(".")[:-2]):
        path = CHECKOUT.joinpath(*parts)
        if len(parts) > 1 and (path.is_dir() or path.with_suffix(".py").exists()):
            return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_and_module_in_backticks_exists(document: str) -> None:
    text = (CHECKOUT / document).read_text()
    missing = []
    for name in named(text):
        path = name.partition(":")[0].removeprefix("./")
        if A_PATH.fullmatch(path) and "NNNN" not in path:
            missing += [] if is_there(document, path) else [name]
        elif A_MODULE.fullmatch(name) and name not in NO_MODULES and not is_module(name):
            missing.append(name)
    assert not missing, "these have moved or gone"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    links = A_LINK.findall((CHECKOUT / document).read_text())
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not ((CHECKOUT / document).parent / link).exists()]
