"""What a request asks of one tree of providers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from conductor.placement.providers import Resources
from conductor.store import Provider, nothing

GroupPolicy = Literal["none", "isolate"]

UNNUMBERED: Final = ""
"""The suffix of the group whose classes may come from several providers of the tree."""


@dataclass(frozen=True, slots=True)
class TraitRule:
    """A rule about traits: all of `required`, one of each set in `any_of`, none of `forbidden`."""

    required: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.required or self.any_of or self.forbidden)

    @property
    def names(self) -> frozenset[str]:
        """All traits that the rule is about."""
        return self.required.union(self.forbidden, *self.any_of)

    def met_by(self, traits: frozenset[str]) -> bool:
        """Say whether a provider with these traits passes."""
        return (
            self.required <= traits
            and not (self.forbidden & traits)
            and all(item & traits for item in self.any_of)
        )


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Resources that belong together.

    A group with a suffix is served by exactly one provider, which meets the traits; without one
    (`UNNUMBERED`) each class comes whole from any provider of the tree, or one that shares with
    it, and the providers used meet the traits together. `member_of` is a list of sets of
    aggregates: one of each set. `in_tree` names a provider of the only tree allowed. A group
    without resources only places its traits (for `same_subtree`).
    """

    suffix: str = UNNUMBERED
    resources: Resources = field(default_factory=nothing)
    traits: TraitRule = field(default_factory=TraitRule)
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """Everything a consumer asks of one tree.

    With the policy `isolate` no two groups with suffixes share a provider. Of each set of
    suffixes in `same_subtree` one group's provider is an ancestor of (or is) all the others'.
    """

    groups: tuple[RequestGroup, ...]
    policy: GroupPolicy = "none"
    same_subtree: tuple[frozenset[str], ...] = ()
    root_traits: TraitRule = field(default_factory=TraitRule)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a request: allocations to claim, and which providers serve which group."""

    allocations: Mapping[str, Resources]
    mappings: Mapping[str, tuple[str, ...]]
    root_id: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates found, at most as many as asked for, and the providers that they name.

    Of these at least capacity and use by class, traits and place in the tree are known; a server
    tells no more.
    """

    found: tuple[Candidate, ...]
    providers: Mapping[str, Provider]
