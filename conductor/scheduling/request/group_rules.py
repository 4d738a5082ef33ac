"""Server groups: which hosts a rule leaves to the next member, given where the others are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity", "fault-domain"]

PlaceOf = Callable[[str, str], int | None]
"""Scope and host to the number of its place: itself, its rack; None where it has none."""

HOST: Final = "host"


@dataclass(frozen=True, slots=True)
class Member:
    """A placed member of a group, and its fault domain where it has one."""

    host: str
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A rule over the places of a group's members, as the next member meets it.

    `scope` says what counts as one place: the host itself, or the aggregate metadata key
    (such as `rack`) whose value its hosts share. `domain` is the next member's own.
    """

    name: str
    policy: Policy
    scope: str = HOST
    most_per_place: int = 1
    members: tuple[Member, ...] = ()
    domain: str | None = None

    @property
    def hard(self) -> bool:
        """Whether a host that breaks the rule is out, not only unloved."""
        return not self.policy.startswith("soft-")

    @property
    def together(self) -> bool:
        """Whether members seek each other."""
        return self.policy in ("affinity", "soft-affinity")

    def joined_by(self, host: str) -> GroupRule:
        """Return the rule as it is once this member is on `host`."""
        return replace(self, members=(*self.members, Member(host, self.domain)))


def rule_of(name: str, body: Mapping[str, Any]) -> GroupRule:
    """Return the rule that a server group's catalogue entry describes, with no member yet."""
    return GroupRule(
        name=name,
        policy=body["policy"],
        scope=body.get("scope", HOST),
        most_per_place=body.get("max_server_per_host") or 1,
    )


def closed_places(rule: GroupRule, place_of: PlaceOf) -> frozenset[int]:
    """Return the places that members close to the next one: full, or of another domain."""
    count: dict[int, int] = {}
    for member in rule.members:
        if rule.policy == "fault-domain" and member.domain == rule.domain:
            continue
        place = place_of(rule.scope, member.host)
        if place is not None:
            count[place] = count.get(place, 0) + 1
    most = rule.most_per_place if rule.policy == "anti-affinity" else 1
    return frozenset(place for place, members in count.items() if members >= most)


def joined_places(rule: GroupRule, place_of: PlaceOf) -> frozenset[int]:
    """Return the places where members are."""
    places = (place_of(rule.scope, member.host) for member in rule.members)
    return frozenset(place for place in places if place is not None)


def allows(rule: GroupRule, host: str, place_of: PlaceOf) -> bool:
    """Say whether the next member may go to `host`.

    A host without a place (in no rack, say) can keep no promise about places.
    """
    if not rule.hard:
        return True
    place = place_of(rule.scope, host)
    if place is None:
        return False
    if rule.together:
        return not rule.members or place in joined_places(rule, place_of)
    return place not in closed_places(rule, place_of)
