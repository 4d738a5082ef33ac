"""From a `SelectHosts` message to request specs: is it current, which instances, which groups."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from conductor.scheduling.request.group_rules import GroupRule, Member, rule_of
from conductor.scheduling.request.request_spec import (
    PAGE_SIZES,
    SOURCE,
    RequestContext,
    RequestSpec,
    request_spec_of,
    scheduler_hints_of,
)
from conductor.scheduling.request.shared_providers import ProviderAmounts
from conductor.store import Decision, Instance, Migration, OperationRecord, UnitOfWork
from models.errors import Broken, Rejected
from models.lifecycle import UNFINISHED, InstanceState, MigrationKind
from models.messages.internal import SCHEDULER, HostRequest, SelectHosts


def is_current(operation: OperationRecord | None, message: SelectHosts) -> bool:
    """Return whether the operation still waits for the reply to exactly this message."""
    return (
        operation is not None
        and not operation.state.ended
        and operation.waiting_on == SCHEDULER
        and operation.sequence == message.token.sequence
    )


def decision_id(message: SelectHosts, instance_id: str) -> str:
    """Return the id of the one decision that this message can lead to for an instance."""
    token = message.token
    name = f"{token.operation_id}/{token.sequence}/{instance_id}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def decisions_of(uow: UnitOfWork, message: SelectHosts) -> list[Decision]:
    """Return the decisions made on this message, in its order; none where it was not handled."""
    order = {
        decision_id(message, host_request.instance_id): at
        for at, host_request in enumerate(message.host_requests)
    }
    return sorted(uow.decisions.where(id=list(order)), key=lambda decision: order[decision.id])


def operations_of(
    uow: UnitOfWork, message: SelectHosts, known: OperationRecord | None = None
) -> dict[str, OperationRecord]:
    """Return by id the message's operation and those of its requests; `known` is not reread."""
    ids = {
        message.token.operation_id,
        *(host_request.operation_id for host_request in message.host_requests),
    }
    found = {} if known is None else {known.id: known}
    left = sorted(ids - found.keys())
    return {
        **found,
        **{
            operation.id: operation for operation in (uow.operations.where(id=left) if left else ())
        },
    }


def still_requested(
    message: SelectHosts,
    instances: Mapping[str, Instance],
    operations: Mapping[str, OperationRecord],
) -> tuple[HostRequest, ...]:
    """Return the host requests whose instance exists and whose own operation has not ended."""
    running = {operation.id for operation in operations.values() if not operation.state.ended}
    return tuple(
        host_request
        for host_request in message.host_requests
        if host_request.operation_id in running and _lives(instances.get(host_request.instance_id))
    )


def with_move_targets(
    uow: UnitOfWork, message: SelectHosts, instances: Mapping[str, Instance]
) -> dict[str, Instance]:
    """Return the instances, each that moves with its migration's target flavor and host.

    It has a host already, and keeps it; the request is for the target
    (`HostRequest.migration_id`).
    """
    requesting = dict(instances)
    for host_request in message.host_requests:
        migration = (
            uow.migrations.get(host_request.migration_id) if host_request.migration_id else None
        )
        instance = instances.get(host_request.instance_id)
        if migration is None or instance is None:
            continue
        requesting[instance.id] = replace(
            instance,
            flavor=migration.target_flavor,
            host=None,
            placement=None,
            request_spec={
                **instance.request_spec,
                "host": migration.requested_host,
                SOURCE: migration.source,
                PAGE_SIZES: _page_sizes(migration),
            },
        )
    return requesting


def _page_sizes(migration: Migration) -> tuple[int | None, ...]:
    """Return the page sizes that a live migration has to keep: memory is copied page by page."""
    if migration.kind is not MigrationKind.LIVE_MIGRATION or migration.source_placement is None:
        return ()
    return tuple(cell.page_size_kib for cell in migration.source_placement.cells)


class RequestSpecs:
    """Makes request specs; group members know the hosts selected earlier in the same message."""

    def __init__(self, uow: UnitOfWork, message: SelectHosts) -> None:
        self._uow = uow
        self._message = message
        self._rules: dict[str, GroupRule] = {}

    def of(self, instance: Instance, *, forced: bool = False) -> RequestSpec:
        """Return the instance's request spec; raise `Rejected` where it contradicts itself.

        Raises `Broken` for an instance that has a host already: it may not have two.
        """
        if instance.host is not None:
            message = f"{instance.id} asks for a host while it holds {instance.host}"
            raise Broken("instance_holds_host", message, instance=instance.id, host=instance.host)
        hints = scheduler_hints_of(instance)
        named = (*hints.with_instances, *hints.apart_from)
        others = self._uow.instances.where(id=named) if named else []
        context = RequestContext(
            self._message.alternates,
            frozenset(self._message.ignored),
            {other.id: other.host for other in others},
            self._rule(instance),
            forced,
            self._provider_amounts(instance),
        )
        return request_spec_of(instance, context)

    def joined(self, spec: RequestSpec, host: str) -> None:
        """Note that the spec's instance was selected for `host`, for the next of its group."""
        if spec.group is not None:
            self._rules[spec.group.name] = spec.group.joined_by(host)

    def _provider_amounts(self, instance: Instance) -> ProviderAmounts:
        """Return what an instance that moves has allocated from providers other than hosts."""
        if instance.request_spec.get(SOURCE) is None:
            return {}
        amounts = {
            allocation.provider: allocation.amounts
            for allocation in self._uow.allocations.where(consumer_id=instance.id)
        }
        found = self._uow.providers.where(name=list(amounts)) if amounts else []
        return {provider.id: amounts[provider.name] for provider in found}

    def _rule(self, instance: Instance) -> GroupRule | None:
        if instance.group is None:
            return None
        if instance.group not in self._rules:
            self._rules[instance.group] = group_rule(self._uow, instance.group, self._message)
        return replace(self._rules[instance.group], domain=scheduler_hints_of(instance).domain)


def group_rule(
    uow: UnitOfWork, name: str, message: SelectHosts, *, lock: bool = False
) -> GroupRule:
    """Return a group's rule with its members, without the instances of the message itself.

    A member that moves counts on both hosts until the move is over. With `lock`, no other
    transaction that locks the group places a member until this one ends. Raises `Rejected`
    (`group_unknown`).
    """
    read = uow.catalogue.lock if lock else uow.catalogue.get
    entry = read("server_group", name)
    if entry is None:
        raise Rejected("group_unknown", f"group is {name}: there is no such group", key="group")
    rule = rule_of(name, entry.body)
    read_members = _by_domain if rule.policy == "fault-domain" else _counted
    requesting = {host_request.instance_id for host_request in message.host_requests}
    return replace(rule, members=tuple(read_members(uow, name, requesting)))


def _counted(uow: UnitOfWork, name: str, requesting: Set[str]) -> Iterator[Member]:
    """Yield the members by host as the store counts them; only those that move are read."""
    hosts = Counter(uow.instances.hosts_of_group(name))
    ends = _ends_of_moves(uow)
    for instance in uow.instances.where(id=sorted(requesting | ends.keys()), group=name):
        if instance.host is not None and _lives(instance):
            hosts[instance.host] -= 1
            hosts.update(_hosts_of(instance, ends) if instance.id not in requesting else ())
    for host in sorted(hosts):
        yield from [Member(host)] * hosts[host]


def _by_domain(uow: UnitOfWork, name: str, requesting: Set[str]) -> Iterator[Member]:
    """Yield the members with their fault domains, for which every member is read."""
    ends = _ends_of_moves(uow)
    for instance in uow.instances.where(group=name):
        if instance.id not in requesting and _lives(instance):
            for host in sorted(_hosts_of(instance, ends)):
                yield Member(host, scheduler_hints_of(instance).domain)


def _ends_of_moves(uow: UnitOfWork) -> dict[str, set[str]]:
    ends: dict[str, set[str]] = {}
    for move in uow.migrations.where(state=tuple(UNFINISHED)):
        if move.target is not None:
            ends.setdefault(move.instance_id, set()).update((move.source, move.target))
    return ends


def _hosts_of(instance: Instance, ends: Mapping[str, set[str]]) -> set[str]:
    return ends.get(instance.id, set()) | ({instance.host} if instance.host else set())


def _lives(instance: Instance | None) -> bool:
    return instance is not None and instance.state is not InstanceState.DELETED
