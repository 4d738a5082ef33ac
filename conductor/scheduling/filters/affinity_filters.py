"""Filters on where other instances are: scheduler hints and hard server group rules."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import NO_PLACE, Fleet
from conductor.scheduling.request.group_rules import closed_places, joined_places
from conductor.scheduling.request.request_spec import RequestSpec


def hinted(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With the instances of `same_host`, without those of `different_host`."""
    if spec.companion_hosts is not None:
        lacks = ("is not the host of its companions", "are not the host of its companions")
        if not spec.companion_hosts:
            lacks = (f"{lacks[0]}, which have none", f"{lacks[1]}, which have none")
        yield Check("not_same_host", lacks, fleet.mask(spec.companion_hosts))
    if spec.avoided_hosts:
        lacks = ("holds an instance to be apart from", "hold an instance to be apart from")
        yield Check("not_different_host", lacks, ~fleet.mask(spec.avoided_hosts))


def in_group(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Where the server group's hard rule allows its next member."""
    rule = spec.group
    if rule is None or not rule.hard:
        return
    labels = fleet.labels(rule.scope)
    if (labels == NO_PLACE).any():
        lacks = (f"has no {rule.scope}", f"have no {rule.scope}")
        yield Check("no_place", lacks, labels != NO_PLACE)
    if not rule.members:
        return
    if rule.together:
        what = f"not on the {rule.scope} of its group"
        passed = fleet.at(rule.scope, joined_places(rule, fleet.place_of))
    else:
        what = f"on a {rule.scope} that its group closes"
        passed = ~fleet.at(rule.scope, closed_places(rule, fleet.place_of))
    yield Check(rule.policy.replace("-", "_"), (f"is {what}", f"are {what}"), passed)
