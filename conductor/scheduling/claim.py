"""The transaction of a claim: a plan becomes allocations, use, states and the reply, or nothing.

The plan was made from a view that may be old. What counts is the host row: it is written only
under the version the plan saw. Where somebody moved first, the row is locked and this one
host is fitted again, then the alternates; only when none takes the instance is the whole
decision made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from conductor.placement.local import provider_claims
from conductor.placement.local.host_claims import HostAllocation, claim_on
from conductor.placement.local.provider_claims import ProviderAllocation
from conductor.placement.resources import room
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.host_selection import Selection
from conductor.scheduling.request.group_rules import GroupRule, allows
from conductor.scheduling.request.request_spec import RequestSpec, place
from conductor.scheduling.request.select_hosts import group_rule
from conductor.store.ports import UnitOfWork
from conductor.store.records import Host, Instance, Migration
from models.errors import Conflict
from models.hardware import Misfit, Placement
from models.lifecycle import TaskState
from models.messages.internal import SelectHosts


@dataclass(frozen=True, slots=True)
class Claimed:
    """A selection as it was written: the host may be an alternate of the one planned."""

    selection: Selection
    host: str
    placement: Placement | None


class Claim:
    """Writes planned selections in one transaction; `hosts` are the host rows as written.

    `refitted` counts the instances whose host had changed since it was planned.
    """

    def __init__(self, uow: UnitOfWork, fleet: Fleet, message: SelectHosts, *, pack: bool) -> None:
        self._uow = uow
        self._message = message
        self._migrations = {
            host_request.instance_id: host_request.migration_id
            for host_request in message.host_requests
        }
        self._fleet = fleet
        self._pack = pack
        self._rules: dict[str, GroupRule] = {}
        self._instances: dict[str, Instance] = {}
        self.hosts: dict[str, Host] = {}
        self.refitted = 0

    def write(
        self, selections: Sequence[Selection], instances: dict[str, Instance]
    ) -> list[Claimed]:
        """Claim every selection for its (locked) instance; raise `Conflict` to be planned anew."""
        self._instances = instances
        self._lock_groups(selections)
        # Before the hosts, as everybody locks them.
        provider_claims.take(self._uow, map(self._taken, selections))
        claimed: list[Claimed] = []
        # In order of name, so that two transactions never wait for each other in a ring.
        for name in sorted({selection.host.name for selection in selections}):
            claimed += self._on_host(
                [selection for selection in selections if selection.host.name == name]
            )
        for item in claimed:
            self._save_instance(item)
        order = {selection.spec.instance_id: at for at, selection in enumerate(selections)}
        return sorted(claimed, key=lambda item: order[item.selection.spec.instance_id])

    def _on_host(self, selections: Sequence[Selection]) -> list[Claimed]:
        planned = [
            Claimed(selection, selection.host.name, selection.placement) for selection in selections
        ]
        if not all(self._joins_group(selection, selection.host.name) for selection in selections):
            raise Conflict("group_moved", "members of the group were placed meanwhile")
        # Later selections of one plan carry the host as the earlier ones leave it.
        after = claim_on(self._uow, selections[0].host, map(self._holding, planned))
        if after is not None:
            self.hosts[after.name] = after
            return planned
        return [self._anew(selection) for selection in selections]

    def _anew(self, selection: Selection) -> Claimed:
        """Claim on the host as it is now, else on the first alternate that takes the instance."""
        if selection.shares.beside:
            raise Conflict("fleet_moved", f"{selection.host.name} has changed with its providers")
        self.refitted += 1
        for name in (selection.host.name, *selection.alternates):
            if name != selection.host.name and not self._joins_group(selection, name):
                continue
            host = self._uow.hosts.lock(name)
            if host is None or not _takes(host, selection.spec):
                continue
            answer = place(selection.spec.shape, host, pack=self._pack)
            if isinstance(answer, Misfit):
                continue
            claimed = Claimed(selection, name, answer)
            after = claim_on(self._uow, host, [self._holding(claimed)])
            if after is not None:
                self.hosts[name] = after
                return claimed
        raise Conflict("fleet_moved", "neither the host chosen nor an alternate has room any more")

    def _holding(self, claimed: Claimed) -> HostAllocation:
        instance = self._instances[claimed.selection.spec.instance_id]
        own = claimed.selection.shares.own
        project, user = instance.project_id, instance.user_id
        return HostAllocation(instance.id, project, claimed.placement, own, user)

    def _taken(self, selection: Selection) -> ProviderAllocation:
        return ProviderAllocation(
            self._instances[selection.spec.instance_id], selection.shares.beside
        )

    def _lock_groups(self, selections: Iterable[Selection]) -> None:
        rules = {rule.name for selection in selections if (rule := _hard_rule(selection.spec))}
        for name in sorted(rules):
            self._rules[name] = group_rule(self._uow, name, self._message, lock=True)

    def _joins_group(self, selection: Selection, host: str) -> bool:
        """Say whether the group, as it is now, lets the instance be on `host`; if so it joins."""
        rule = _hard_rule(selection.spec)
        if rule is None:
            return True
        now = replace(self._rules[rule.name], domain=rule.domain)
        if not allows(now, host, self._fleet.place_of):
            return False
        self._rules[rule.name] = now.joined_by(host)
        return True

    def _save_instance(self, claimed: Claimed) -> None:
        instance = self._instances[claimed.selection.spec.instance_id]
        migration_id = self._migrations.get(instance.id)
        migration = self._uow.migrations.get(migration_id) if migration_id else None
        if migration is not None:
            _save_target(self._uow, migration, claimed)
            return
        spawning = instance.task_state is TaskState.SCHEDULING
        self._uow.instances.save(
            replace(
                instance,
                host=claimed.host,
                placement=claimed.placement,
                availability_zone=self._fleet.catalogue.zone_of(claimed.host),
                task_state=TaskState.SPAWNING if spawning else instance.task_state,
                updated_at=self._uow.now,
            )
        )


def _save_target(uow: UnitOfWork, migration: Migration, claimed: Claimed) -> None:
    """Write the claim of a move: the instance stays where it is until the move says otherwise."""
    uow.migrations.save(
        replace(
            migration,
            target=claimed.host,
            target_placement=claimed.placement,
            updated_at=uow.now,
        )
    )


def _hard_rule(spec: RequestSpec) -> GroupRule | None:
    return spec.group if spec.group is not None and spec.group.hard else None


def _takes(host: Host, spec: RequestSpec) -> bool:
    """Say whether a host read anew is still in service, or forced, and has the amounts."""
    in_service = host.enabled and not host.forced_down and host.degraded is None
    return (in_service or spec.forced) and room(host, spec.shape.amounts) is None
