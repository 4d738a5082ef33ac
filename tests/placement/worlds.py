"""Random small worlds of providers, and random requests of them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence

from conductor.placement.request_groups import (
    CandidateRequest,
    GroupPolicy,
    RequestGroup,
    TraitRule,
)
from conductor.store import Inventory, Provider
from models.hardware import FrozenMap

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "SRIOV_NET_VF")
TRAITS = ("HW_CPU_X86_AVX2", "CUSTOM_A", "CUSTOM_B")
SHARES = "MISC_SHARES_VIA_AGGREGATE"
AGGREGATES = tuple(str(uuid.UUID(int=1000 + number)) for number in range(3))


def provider_id(number: int) -> str:
    """Return the id of a provider by number."""
    return str(uuid.UUID(int=number))


def provider(
    number: int,
    parent: Provider | None = None,
    traits: Iterable[str] = (),
    aggregates: Iterable[str] = (),
    **amounts: int | Inventory,
) -> Provider:
    """Return a provider with these inventories."""
    own = provider_id(number)
    return Provider(
        id=own,
        name=f"provider-{number}",
        parent_id=None if parent is None else parent.id,
        root_id=own if parent is None else parent.root_id,
        inventories=FrozenMap(
            {
                name: has if isinstance(has, Inventory) else Inventory(has)
                for name, has in amounts.items()
            }
        ),
        traits=frozenset(traits),
        aggregates=frozenset(aggregates),
    )


def random_world(chance: random.Random, at_most: int = 6) -> list[Provider]:
    """Return some trees, parents before children, some of them sharing."""
    world: list[Provider] = []
    for number in range(1, chance.randint(1, at_most) + 1):
        parent = chance.choice(world) if world and chance.random() < 0.6 else None
        classes = [name for name in CLASSES if chance.random() < 0.7]
        made = provider(
            number,
            parent,
            [item for item in (*TRAITS, SHARES) if chance.random() < 0.3],
            [aggregate for aggregate in AGGREGATES if chance.random() < 0.25],
            **{name: _inventory(chance) for name in classes},
        )
        used = {name: chance.randint(0, 3) for name in classes if chance.random() < 0.3}
        world.append(_with_used(made, {name: n for name, n in used.items() if n}))
    return world


def random_request(chance: random.Random, world: Sequence[Provider]) -> CandidateRequest:
    """Return a request of up to four groups that is likely to be served."""
    suffixes = [f"_{number}" for number in range(1, chance.choice((0, 1, 1, 2, 2, 3)) + 1)]
    groups = [_group(chance, world, suffix) for suffix in suffixes]
    if not groups or chance.random() < 0.6:
        groups.insert(0, _group(chance, world, ""))
    subtrees = []
    if len(suffixes) > 1 and chance.random() < 0.4:
        subtrees.append(frozenset(chance.sample(suffixes, chance.randint(2, len(suffixes)))))
        if chance.random() < 0.7:
            subtrees[0] |= {"_near"}
            groups.append(RequestGroup("_near", traits=_rule(chance, 0.5)))
            if not groups[-1].traits.required:
                groups[-1] = RequestGroup("_near", traits=TraitRule(frozenset({TRAITS[1]})))
    policy: GroupPolicy = chance.choice(("none", "isolate"))
    root = _rule(chance, 0.3) if chance.random() < 0.2 else TraitRule()
    root = TraitRule(root.required, (), root.forbidden)
    return CandidateRequest(tuple(groups), policy, tuple(subtrees), root)


def _inventory(chance: random.Random) -> Inventory:
    total = chance.randint(2, 12)
    return Inventory(
        total=total,
        reserved=chance.choice((0, 0, 0, min(2, total))),
        ratio=chance.choice((1.0, 1.0, 2.0, 1.5)),
        min_unit=chance.choice((1, 1, 1, 1, 1, 2)),
        max_unit=chance.choice((None, None, None, 3, 4)),
        step_size=chance.choice((1, 1, 1, 1, 1, 2)),
    )


def _with_used(made: Provider, used: dict[str, int]) -> Provider:
    return Provider(
        made.id, made.name, made.parent_id, made.root_id, 0,
        made.inventories, FrozenMap(used), made.traits, made.aggregates,
    )  # fmt: skip


def _group(chance: random.Random, world: Sequence[Provider], suffix: str) -> RequestGroup:
    at_most = 3 if suffix == "" else 2
    classes = chance.sample(CLASSES, chance.randint(1, at_most))
    far = chance.random() < 0.07
    return RequestGroup(
        suffix=suffix,
        resources=FrozenMap({name: chance.choice((1, 1, 1, 2, 2, 3)) for name in classes}),
        traits=_rule(chance, 0.08),
        member_of=tuple(
            frozenset(chance.sample(AGGREGATES, chance.randint(1, 2)))
            for _ in range(chance.choice((0, 0, 0, 0, 0, 0, 0, 1, 1, 2)))
        ),
        not_member_of=frozenset(aggregate for aggregate in AGGREGATES if chance.random() < 0.05),
        in_tree=chance.choice(world).id if far else None,
    )


def _rule(chance: random.Random, likely: float) -> TraitRule:
    required = frozenset(trait for trait in TRAITS if chance.random() < likely)
    forbidden = frozenset(trait for trait in TRAITS if chance.random() < likely / 2) - required
    any_of: tuple[frozenset[str], ...] = ()
    if chance.random() < likely / 2:
        any_of = (frozenset(chance.sample(TRAITS, 2)),)
        forbidden -= any_of[0]
    return TraitRule(required, any_of, forbidden)
