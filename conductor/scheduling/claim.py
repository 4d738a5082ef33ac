"""Claims: selections become allocations, in the caller's transaction, all or none.

Optimistic concurrency control. A selection comes from a cache that may be stale, so a host row is
written only under the version that the selection saw. On a mismatch the row is locked and that one
host is fitted again, then the alternates; when none takes the instance, `Conflict` makes the
caller select again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from conductor.placement.local import host_claims, provider_claims
from conductor.placement.local.host_claims import HostAllocation
from conductor.placement.local.provider_claims import ProviderAllocation
from conductor.placement.resources import shortage_of
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.host_selection import Selection
from conductor.scheduling.request.group_rules import GroupRule, allows
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.select_hosts import group_rule
from conductor.scheduling.request.shape_placement import place
from conductor.store import Host, Instance, Migration, UnitOfWork
from models.errors import Conflict
from models.hardware import Misfit, Placement
from models.lifecycle import TaskState
from models.messages.internal import SelectHosts


@dataclass(frozen=True, slots=True)
class Claim:
    """A selection as it was written: `host` may be an alternate of the selected one."""

    selection: Selection
    host: str
    placement: Placement | None


class ClaimWriter:
    """Writes claims in one transaction; `hosts` are the host rows as written.

    `refitted` counts the instances whose host had changed since it was selected.
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

    def write(self, selections: Sequence[Selection], instances: dict[str, Instance]) -> list[Claim]:
        """Claim every selection for its (locked) instance, in their order.

        Raises `Conflict` where neither a selected host nor an alternate takes its instance.
        """
        self._instances = instances
        self._lock_groups(selections)
        # Lock order: providers before hosts, hosts by name, so that no two transactions deadlock.
        provider_claims.allocate(self._uow, map(self._provider_allocation, selections))
        claims: list[Claim] = []
        for name in sorted({selection.host.name for selection in selections}):
            claims += self._on_host(
                [selection for selection in selections if selection.host.name == name]
            )
        for claim in claims:
            self._save_instance(claim)
        order = {selection.spec.instance_id: at for at, selection in enumerate(selections)}
        return sorted(claims, key=lambda claim: order[claim.selection.spec.instance_id])

    def _on_host(self, selections: Sequence[Selection]) -> list[Claim]:
        claims = [
            Claim(selection, selection.host.name, selection.placement) for selection in selections
        ]
        if not all(self._joins_group(selection, selection.host.name) for selection in selections):
            raise Conflict("group_moved", "members of the group were placed meanwhile")
        # Later selections of one message carry the host as the earlier ones leave it.
        after = host_claims.allocate(
            self._uow, selections[0].host, map(self._host_allocation, claims)
        )
        if after is not None:
            self.hosts[after.name] = after
            return claims
        return [self._refit(selection) for selection in selections]

    def _refit(self, selection: Selection) -> Claim:
        """Claim on the host as it is now, else on the first alternate that takes the instance."""
        if selection.candidate.provider_amounts:
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
            claim = Claim(selection, name, answer)
            after = host_claims.allocate(self._uow, host, [self._host_allocation(claim)])
            if after is not None:
                self.hosts[name] = after
                return claim
        raise Conflict("fleet_moved", "neither the host chosen nor an alternate has room any more")

    def _host_allocation(self, claim: Claim) -> HostAllocation:
        instance = self._instances[claim.selection.spec.instance_id]
        amounts = claim.selection.candidate.host_amounts
        project, user = instance.project_id, instance.user_id
        return HostAllocation(instance.id, project, claim.placement, amounts, user)

    def _provider_allocation(self, selection: Selection) -> ProviderAllocation:
        return ProviderAllocation(
            self._instances[selection.spec.instance_id], selection.candidate.provider_amounts
        )

    def _lock_groups(self, selections: Iterable[Selection]) -> None:
        rules = {rule.name for selection in selections if (rule := _hard_rule(selection.spec))}
        for name in sorted(rules):
            self._rules[name] = group_rule(self._uow, name, self._message, lock=True)

    def _joins_group(self, selection: Selection, host: str) -> bool:
        """Return whether the group, as it is now, allows the instance on `host`; if so it joins."""
        rule = _hard_rule(selection.spec)
        if rule is None:
            return True
        now = replace(self._rules[rule.name], domain=rule.domain)
        if not allows(now, host, self._fleet.place_of):
            return False
        self._rules[rule.name] = now.joined_by(host)
        return True

    def _save_instance(self, claim: Claim) -> None:
        instance = self._instances[claim.selection.spec.instance_id]
        migration_id = self._migrations.get(instance.id)
        migration = self._uow.migrations.get(migration_id) if migration_id else None
        if migration is not None:
            _save_target(self._uow, migration, claim)
            return
        spawning = instance.task_state is TaskState.SCHEDULING
        self._uow.instances.save(
            replace(
                instance,
                host=claim.host,
                placement=claim.placement,
                availability_zone=self._fleet.catalogue.zone_of(claim.host),
                task_state=TaskState.SPAWNING if spawning else instance.task_state,
                updated_at=self._uow.now,
            )
        )


def _save_target(uow: UnitOfWork, migration: Migration, claim: Claim) -> None:
    """Write the claim of a move into its migration; the instance stays on its host for now."""
    uow.migrations.save(
        replace(
            migration,
            target=claim.host,
            target_placement=claim.placement,
            updated_at=uow.now,
        )
    )


def _hard_rule(spec: RequestSpec) -> GroupRule | None:
    return spec.group if spec.group is not None and spec.group.hard else None


def _takes(host: Host, spec: RequestSpec) -> bool:
    """Return whether a host, as just read, is in service (or forced) and has the amounts."""
    in_service = host.enabled and not host.forced_down and host.degraded is None
    return (in_service or spec.forced) and shortage_of(host, spec.shape.amounts) is None
