"""Trees with many children and requests with many groups: easy, many, none, and hard to tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conductor.placement.candidates.candidate_search import Tree
from conductor.placement.request_groups import (
    CandidateRequest,
    GroupPolicy,
    RequestGroup,
    TraitRule,
)
from conductor.store import Provider
from models.hardware import FrozenMap
from tests.placement import worlds

VF = "SRIOV_NET_VF"
ROOT = worlds.provider(1, VCPU=64)


@dataclass(frozen=True)
class Case:
    """What is asked of which tree, and whether it can be had."""

    name: str
    tree: Tree
    request: CandidateRequest
    feasible: bool


def cases(n: int) -> Iterator[Case]:
    """Yield trees of n children with requests of about n groups, of every kind we know."""
    yield from _apart(n)
    yield from _packed(n)
    yield from _with_loose(n)
    yield from _subtrees(n)


def _apart(n: int) -> Iterator[Case]:
    ones = _groups([1] * n)
    marked = {at: ["CUSTOM_A"] for at in range(n // 2 - 1)}
    half = [*ones[: n // 2], *(_with_trait(one, "CUSTOM_A") for one in ones[n // 2 :])]
    sizes = _groups([*range(2, n + 1), n // 2])
    yield Case("isolate, all alike", _children([4] * n), _asked(ones, "isolate"), True)
    yield Case("isolate, one too few", _children([4] * (n - 1)), _asked(ones, "isolate"), False)
    yield Case("isolate, few have the trait", _children([4] * n, marked),
               _asked(half, "isolate"), False)  # fmt: skip
    yield Case("isolate, two for one size", _children(range(1, n + 1)),
               _asked([*sizes, *_groups([n], "_last")], "isolate"), False)  # fmt: skip


def _packed(n: int) -> Iterator[Case]:
    mixed = _groups([1 + at % 4 for at in range(n)])
    halves = _groups([53 + at for at in range(n)])
    odd = [21, 34, 28, 45, 39, 52, 26, 31]
    total = sum(odd)
    yield Case("none, all alike", _children([4] * n), _asked(_groups([1] * n)), True)
    yield Case("none, four sizes", _children([4] * n), _asked(mixed), True)
    yield Case("none, no two fit together, alike", _children([10] * (n - 1)),
               _asked(_groups([6] * n)), False)  # fmt: skip
    yield Case("none, no two fit together, all different",
               _children([100 + at % 5 for at in range(n - 1)]), _asked(halves), False)  # fmt: skip
    yield Case("none, even sizes in odd rooms", _children([2 * (total // 6) + 1] * 3),
               _asked(_groups([2 * number for number in odd])), False)  # fmt: skip
    yield Case("none, one more than room", _children([total // 4] * 4), _asked(_groups(odd)), False)
    classes = "MEMORY_MB", "DISK_GB"
    # Two fit into each and three do not, though all together are less than all room.
    plane = [child(2 + at, ROOT, MEMORY_MB=100, DISK_GB=100) for at in range(n // 2 - 1)]
    sizes = [(34 + at % 4, 37 - at % 4) for at in range(n)]
    pairs = [
        RequestGroup(f"_{at}", FrozenMap(dict(zip(classes, pair, strict=True))))
        for at, pair in enumerate(sizes)
    ]
    yield Case("none, two classes", Tree((ROOT, *plane)), _asked(pairs), False)


def _with_loose(n: int) -> Iterator[Case]:
    classes = [f"CUSTOM_{at}" for at in range(n)]
    all_of = dict.fromkeys(classes, 1)
    wide = Tree((ROOT, *(child(2 + at, ROOT, [f"CUSTOM_T{at}"], **all_of) for at in range(n))))
    twice = dict.fromkeys(classes, 2)
    room = Tree((ROOT, *(child(2 + at, ROOT, **twice) for at in range(n))))
    traits = TraitRule(frozenset(f"CUSTOM_T{at}" for at in range(n)))
    loose = RequestGroup(resources=FrozenMap(all_of))
    fewer = RequestGroup(resources=FrozenMap(dict.fromkeys(classes[:-1], 1)), traits=traits)
    rest = [RequestGroup(f"_{at}", FrozenMap(all_of)) for at in range(2 * n - 1)]
    doubled = RequestGroup(resources=FrozenMap(twice))
    yield Case("any class anywhere", wide, _asked([loose]), True)
    yield Case("one trait more than classes", wide, _asked([fewer]), False)
    yield Case(
        "classes and groups, isolate", room, _asked([doubled, *rest[: n - 1]], "isolate"), True
    )
    yield Case("classes and groups, none", room, _asked([doubled, *rest]), False)


def _subtrees(n: int) -> Iterator[Case]:
    deep = _deep(n)
    pairs = [(2 * at, 2 * at + 1) for at in range(n // 2)]
    ones = _groups([1] * n)
    same = [_with_trait(one, "CUSTOM_N0") for one in ones]
    more = _groups([1] * (2 * n + 1))
    too_many = [(2 * at, 2 * at + 1) for at in range(n)]
    yield Case("pairs below one device", deep, _near(ones, pairs, "isolate"), True)
    yield Case("three below a device of two", deep, _near(ones, [(0, 1, 2), *pairs[2:]]), False)
    yield Case("two of a kind below a device of one", deep, _near(same, pairs), False)
    yield Case("more pairs than devices", deep, _near(more, too_many), False)


def child(number: int, parent: Provider, traits: Iterable[str] = (), /, **amounts: int) -> Provider:
    """Return a provider below another."""
    return worlds.provider(number, parent, traits, (), **amounts)


def _children(rooms: Sequence[int] | range, traits: Mapping[int, list[str]] | None = None) -> Tree:
    known = traits or {}
    children = (
        child(2 + at, ROOT, known.get(at, ()), **{VF: room}) for at, room in enumerate(rooms)
    )
    return Tree((ROOT, *children))


def _deep(n: int) -> Tree:
    """Return n devices, each with two children that serve one each."""
    made = [ROOT]
    for at in range(n):
        device = child(10 + 3 * at, ROOT, ["CUSTOM_DEVICE"])
        made += [
            device,
            *(child(11 + 3 * at + side, device, [f"CUSTOM_N{side}"], **{VF: 1}) for side in (0, 1)),
        ]
    return Tree(tuple(made))


def _groups(amounts: Sequence[int], prefix: str = "_") -> list[RequestGroup]:
    return [
        RequestGroup(f"{prefix}{at}", FrozenMap({VF: amount})) for at, amount in enumerate(amounts)
    ]


def _with_trait(request_group: RequestGroup, trait: str) -> RequestGroup:
    return RequestGroup(
        request_group.suffix, request_group.resources, TraitRule(frozenset({trait}))
    )


def _asked(groups: Sequence[RequestGroup], policy: GroupPolicy = "none") -> CandidateRequest:
    return CandidateRequest(tuple(groups), policy)


def _near(
    groups: Sequence[RequestGroup],
    subtrees: Sequence[Sequence[int]],
    policy: GroupPolicy = "none",
) -> CandidateRequest:
    """Ask for groups by number to be below a device, each set of them below one."""
    device = TraitRule(frozenset({"CUSTOM_DEVICE"}))
    above = [RequestGroup(f"_above{at}", traits=device) for at in range(len(subtrees))]
    same_subtree = tuple(
        frozenset({f"_above{at}", *(groups[member].suffix for member in members)})
        for at, members in enumerate(subtrees)
    )
    return CandidateRequest((*groups, *above), policy, same_subtree)
