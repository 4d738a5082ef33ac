"""One word per thing: names the word to use for every word of a private dialect that it finds.

    python -m tests.house.words [PATH ...]

The glossary is in CONTRIBUTING.md. `NOWHERE` are words with no place in names, comments,
docstrings or documents; `NO_NAME` are plain English that says too little as a name.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

CHECKOUT: Final = Path(__file__).resolve().parents[2]

NOWHERE: Final[Mapping[str, str]] = {
    "beside us": "another consumer",
    "canopy": "provider columns",
    "clockwork": "periodic jobs",
    "fate": "injected fault",
    "forest": "provider index",
    "habit": "fault injection (of a host), history (of a scheduler)",
    "hello": "registration",
    "letter": "message; outgoing message (the outbox row)",
    "leash": "fenced hypervisor",
    "lane": "keyed executor",
    "manifest": "inventory report",
    "parcel": "AMQP message",
    "sight": "operation status",
    "vouch": "confirmation",
    "wish": "requirement",
}
NO_NAME: Final[Mapping[str, str]] = {
    "ask": "dispatch (to a host or the scheduler), query (of a database), request",
    "asked": "requested, dispatched",
    "asking": "dispatch",
    "asks": "dispatches, requests",
    "awaited": "a verb, or what is waited for",
    "beside": "shared provider, or what it is",
    "bury": "record a dead letter",
    "demand": "request spec",
    "each": "the noun: host, instance, message",
    "forward": "execution",
    "greet": "register",
    "held": "allocation, allocated",
    "holding": "allocation",
    "partner": "mirror (of a Placement server)",
    "patience": "store retry",
    "relieve": "release",
    "room": "headroom, free capacity",
    "said": "a verb that says what is done, or the text's own name",
    "story": "history, event log",
    "taken": "allocation, allocated, used",
    "tell": "notify, add event, print",
    "told": "event, notification, printed",
    "turning": "rollback",
    "want": "host request",
    "wants": "host requests",
}
MEANT: Final = re.compile(
    r"dead[\s_-]*letter|to[\s_]the[\s_]letter|lettered"
    r"|(lower[\s-]?case|upper[\s-]?case|capital|only|with|the|[0-9,]+|small|ASCII)[\s_]letters?\b"
    r"|letters?,? (and|or) digits?|letters, digits|digits,? (and|or) letters"
    r"|container manifest|in sight|line of sight"
    r"|reports\.(hello|manifest)|conductor_outbox_letters|CONDUCTOR_MANIFEST_S"
    r'|--habit|"habit"|\bhabit (is|{name})|habit_(unknown|invalid)',
    re.IGNORECASE,
)
"""What these words mean to everybody: dead letters, the alphabet; and published names."""
KEPT: Final = {
    *("story", "held", "ask_again_s", "manifest_s", "asked_at", "json_each"),
    *("forward",),
    *("room_left", "room_to_grow", "usual_room_kept"),
}
"""Published fields and settings, database columns and functions, a method of kombu's clock."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Find(NamedTuple):
    """One word where it stands."""

    path: str
    line: int
    word: str
    use: str


def finds(paths: Sequence[str]) -> Iterator[Find]:
    """Every banned word in the tracked files below `paths`, in order."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    )
    for path in sorted(set(listed.stdout.split())):
        if path in _EXEMPT or not (CHECKOUT / path).is_file():
            continue
        yield from finds_in(path, (CHECKOUT / path).read_text("utf-8", errors="replace"))


_EXEMPT: Final = {
    "tests/house/words.py",
    "tests/house/test_words.py",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
}


def finds_in(path: str, text: str) -> Iterator[Find]:
    """Every banned word in the text of one file: names and prose of Python, prose of Markdown."""
    if path.endswith(".py"):
        yield from _in_python(path, text)
    elif path.endswith(".md"):
        for number, line in enumerate(text.splitlines(), 1):
            yield from _in_prose(path, number, line)


def _in_python(path: str, text: str) -> Iterator[Find]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number = token.start[0]
        if token.type == tokenize.NAME:
            yield from _in_name(path, number, token.string)
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield from _in_prose(path, number + offset, line)


def _in_name(path: str, number: int, name: str) -> Iterator[Find]:
    if MEANT.search(name) or MEANT.search(" ".join(_WORD.findall(name))):
        return
    for part in _WORD.findall(name):
        word = part.lower()
        use = _nowhere(word) or (None if path.startswith("tests/") else NO_NAME.get(word))
        if use and name not in KEPT:
            yield Find(path, number, name, use)
            return


def _in_prose(path: str, number: int, line: str) -> Iterator[Find]:
    for word in re.findall(r"[A-Za-z]+", MEANT.sub("", line)):
        if use := _nowhere(word.lower()):
            yield Find(path, number, word, use)


def _nowhere(word: str) -> str | None:
    for banned, use in NOWHERE.items():
        if re.fullmatch(rf"{banned}(s|es|ed|ing)?", word):
            return use
    return None


CLEAN: Final = (
    *(
        "conductor",
        "tasks",
        "models",
        "workers",
        "docs",
        "deploy",
        "examples",
        "README.md",
        "tests",
    ),
)
"""What is looked at without arguments: all of the product."""


def main(paths: Sequence[str]) -> int:
    """Print what is found, with the word to use; return 1 when there is any."""
    found = list(finds(paths or CLEAN))
    for find in found:
        print(f"{find.path}:{find.line}: {find.word}: say {find.use}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
