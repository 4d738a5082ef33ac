"""What README.md and the pages beside it tell a reader to type is typed here, as it stands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor.cli.command_registry import MODULES
from tests.cli.running import runner
from tests.environment.variables import CHECKOUT
from tests.limits import limit_s

STARTS = ".venv/bin/conductor up &"
NEEDS_MORE = ("flower",)
"""Commands that stay in the foreground or need services: `tests/acceptance/test_flower.py`."""

PAGES = [
    CHECKOUT / "README.md",
    *sorted((CHECKOUT / "docs").glob("*.md")),
    CHECKOUT / "deploy" / "README.md",
    CHECKOUT / "examples" / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
]


def blocks(page: Path) -> list[str]:
    """Return the fenced shell blocks of a page."""
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def typed(block: str) -> list[str]:
    """Return the lines of a block that name our command, without what is said about them."""
    return [line for line in block.splitlines() if ".venv/bin/conductor" in line]


def documented() -> list[tuple[str, ...]]:
    """Return every command of ours that a page names, but for those of README, which are typed."""
    found = set()
    for page in PAGES:
        text = page.read_text()
        own = [] if page.name == "README.md" and page.parent == CHECKOUT else blocks(page)
        places = [*own, *re.findall(r"`([^`\n]+)`", text)]
        for place in places:
            for line in place.splitlines():
                begun = re.search(r"(?:^|/|\()conductor +([a-z][a-z-]*)( .*)?$", line.split("#")[0])
                if begun is not None:
                    found.add((begun[1], *_words(begun[2] or "")))
    return sorted(found)


def _words(rest: str) -> list[str]:
    rest = re.split(r"[)&|>…]", rest)[0]
    words = shlex.split(rest)
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        # A placeholder stays where it is the value of an option.
        if before.startswith("--") or not re.fullmatch(r"[A-Z]+(\.\w+)?", word)
    ]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The system that the first block starts, in a state directory of its own."""
    state_dir = tmp_path_factory.mktemp("readme")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_")}
    environment = {**kept, "CONDUCTOR_STATE_DIR": str(state_dir)}
    first = next(block for block in blocks(CHECKOUT / "README.md") if STARTS in block)
    assert typed(first) == first.splitlines()
    assert len(typed(first)) == 1
    script = f"{first.strip().split(' #')[0].strip().removesuffix('&')}"
    with subprocess.Popen(
        ["bash", "-c", f"exec {script}"],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield environment
        running.send_signal(signal.SIGTERM)
        assert running.wait(limit_s(60)) == 0


def test_what_readme_says_to_type_works_in_that_order(system: dict[str, str]) -> None:
    commands = [
        line
        for block in blocks(CHECKOUT / "README.md")
        for line in typed(block)
        if STARTS not in line and not any(f"conductor {name}" in line for name in NEEDS_MORE)
    ]
    assert len(commands) > 15
    marked = [f"echo '--- {n}' >&2\n{line}" for n, line in enumerate(commands)]
    done = subprocess.run(
        ["bash", "-e"],
        input="\n".join(marked),
        cwd=CHECKOUT,
        env=system,
        capture_output=True,
        text=True,
        timeout=limit_s(300),
        check=False,
    )
    last = commands[int(done.stderr.rpartition("--- ")[2].split()[0])]
    assert done.returncode == 0, f"{last}\n{done.stderr}"


@pytest.mark.parametrize("command", documented(), ids=" ".join)
def test_every_command_that_a_page_names_exists_with_its_options(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command[0] in MODULES
    # Options are read before --help answers, so an unknown one is refused here too.
    answer = runner(capsys)(*command, "--help")
    assert answer.code == 0, answer.err


UNSHIPPED = re.compile(
    r"CONTRACT|DESIGN\.md|STYLE\.md|STACK\.md|CASES\.md|CHECKLIST|FOUND\.md|\bcase [A-Z]\d\d\b"
    r"|\([A-Z]\d\d(, [A-Z]\d\d)*\)"
)


def test_nothing_that_ships_cites_a_document_that_does_not() -> None:
    shipped = [
        path
        for folder in ("conductor", "models", "tasks", "workers", "docs", "deploy", "examples")
        for path in (CHECKOUT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".yaml", ".service", ".json")
    ]
    for path in [*shipped, *PAGES, CHECKOUT / "CHANGELOG.md", CHECKOUT / "BENCHMARKS.md"]:
        found = UNSHIPPED.search(path.read_text())
        assert found is None, f"{path.relative_to(CHECKOUT)}: {found and found[0]}"
