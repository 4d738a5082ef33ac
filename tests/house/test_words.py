"""The check of words itself: what it finds, what it leaves alone, and what it says."""

from __future__ import annotations

import pytest

from tests.house.words import Find, finds_in


def words(path: str, text: str) -> list[str]:
    return [find.word for find in finds_in(path, text)]


@pytest.mark.parametrize(
    "name", ["letter", "outgoing_letters", "LetterBox", "LETTERS", "ProviderForest", "wished_for"]
)
def test_a_banned_word_is_found_in_every_form_of_a_name(name: str) -> None:
    assert words("models/x.py", f"{name} = 1\n") == [name]


@pytest.mark.parametrize("name", ["taken", "is_taken", "each", "ask_host", "Room", "was_told"])
def test_a_word_that_says_too_little_is_no_name_in_the_product(name: str) -> None:
    assert words("models/x.py", f"{name} = 1\n") == [name]


def test_a_word_that_says_too_little_is_good_english_and_fine_in_a_test() -> None:
    assert not words("models/x.py", '"""Each host is asked; what is taken is told."""\n')
    assert not words("tests/x.py", "taken = 1\n")


def test_prose_is_comments_strings_and_documents() -> None:
    assert words("models/x.py", "# a letter\nx = 'two wishes'\n") == ["letter", "wishes"]
    assert words("docs/x.md", "A forest\nof parcels\n") == ["forest", "parcels"]


@pytest.mark.parametrize(
    "text",
    [
        "Dead letters are kept.",
        "a name of letters, digits and dashes",
        "lower case letters only",
        "it is kept to the letter",
        "the end is in sight",
        "`reports.hello` is the task",
        "`--habit latency_s=1`",
        "newsletters, welcome, deforestation",
    ],
)
def test_what_means_the_same_to_everybody_is_left_alone(text: str) -> None:
    assert not words("docs/x.md", text)


@pytest.mark.parametrize("name", ["dead_letters", "DeadLetter", "manifest_s", "story", "telling"])
def test_published_names_are_left_alone(name: str) -> None:
    assert not words("models/x.py", f"{name} = 1\n")


def test_a_find_names_the_place_and_the_word_to_use() -> None:
    assert list(finds_in("docs/x.md", "\nA leash.\n")) == [
        Find("docs/x.md", 2, "leash", "fenced hypervisor")
    ]
