"""CPU lists as people write them and CPU sets as integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import Rejected
from models.hardware import (
    HIGHEST_CPU,
    cpus_of,
    first_cpus,
    format_cpu_list,
    mask_of,
    parse_cpu_list,
)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("1-4,^3,6", (1, 2, 4, 6)),
        ("^3,1-4,6", (1, 2, 4, 6)),
        ("0-7,^2-5", (0, 1, 6, 7)),
        ("^2-5,0-7", (0, 1, 6, 7)),
        (" 1 , 2 - 3 ,, ^ 2 ", (1, 3)),
        ("4-12,^8,15", (4, 5, 6, 7, 9, 10, 11, 12, 15)),
        ("2-10,^5,14", (2, 3, 4, 6, 7, 8, 9, 10, 14)),
        ("5", (5,)),
        ("1,^1", ()),
        ("^1", ()),
        ("", ()),
    ],
)
def test_a_cpu_list_means_its_members_wherever_exclusions_stand(
    text: str, cpus: tuple[int, ...]
) -> None:
    assert cpus_of(parse_cpu_list(text)) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "4-1", "^", "^x", "1-2-3", "1;2", "0x1", "1.5", "²", "1-^2", "9" * 40]
)
def test_anything_but_numbers_ranges_and_exclusions_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refusal:
        parse_cpu_list(text)
    assert refusal.value.code == "cpu_list_invalid"


def test_a_number_beyond_any_host_is_refused_before_it_allocates() -> None:
    with pytest.raises(Rejected):
        parse_cpu_list(f"0-{HIGHEST_CPU + 1}")


def test_neighbours_are_joined_unless_told_otherwise() -> None:
    cpus = mask_of([0, 1, 2, 5, 7, 8])
    assert format_cpu_list(cpus) == "0-2,5,7-8"
    assert format_cpu_list(cpus, ranges=False) == "0,1,2,5,7,8"
    assert format_cpu_list(0) == ""


@given(st.frozensets(st.integers(0, 300)), st.booleans())
def test_what_is_written_is_read_back(cpus: frozenset[int], ranges: bool) -> None:
    mask = mask_of(cpus)
    assert cpus_of(mask) == tuple(sorted(cpus))
    assert mask.bit_count() == len(cpus)
    assert parse_cpu_list(format_cpu_list(mask, ranges=ranges)) == mask


def test_the_first_cpus_are_the_lowest_and_never_more_than_there_are() -> None:
    assert cpus_of(first_cpus(mask_of([9, 3, 5]), 2)) == (3, 5)
    assert cpus_of(first_cpus(mask_of([9, 3]), 5)) == (3, 9)
