"""What a `SelectHosts` message still asks, read from the store: is it current, and of whom."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from conductor.scheduling.demand import Demand, Surroundings, demand_of, hints_of
from conductor.scheduling.groups import GroupRule, Member, rule_of
from conductor.store.ports import UnitOfWork
from conductor.store.records import Decision, Instance, OperationRecord
from models.errors import Broken, Rejected
from models.lifecycle import InstanceState
from models.messages.letters import SCHEDULER, SelectHosts, Want


def is_current(operation: OperationRecord | None, message: SelectHosts) -> bool:
    """Say whether the operation still waits for the answer to exactly this message."""
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


def decided(uow: UnitOfWork, message: SelectHosts) -> list[Decision]:
    """Return the decisions this message has led to: none unless it was answered before."""
    return uow.decisions.where(
        id=[decision_id(message, want.instance_id) for want in message.wants]
    )


def still_wanted(
    uow: UnitOfWork, message: SelectHosts, instances: Mapping[str, Instance]
) -> tuple[Want, ...]:
    """Return the wants whose instance lives and whose own operation has not ended meanwhile."""
    ids = {want.operation_id for want in message.wants}
    running = {each.id for each in uow.operations.where(id=sorted(ids)) if not each.state.ended}
    return tuple(
        want
        for want in message.wants
        if want.operation_id in running and _lives(instances.get(want.instance_id))
    )


def moving(
    uow: UnitOfWork, message: SelectHosts, instances: Mapping[str, Instance]
) -> dict[str, Instance]:
    """Return the instances as they ask: one that moves asks with its migration's flavor and host.

    It has a host already, and keeps it; what it asks for is the target (`Want.migration_id`).
    """
    asking = dict(instances)
    for want in message.wants:
        migration = uow.migrations.get(want.migration_id) if want.migration_id else None
        instance = instances.get(want.instance_id)
        if migration is None or instance is None:
            continue
        asking[instance.id] = replace(
            instance,
            flavor=migration.target_flavor,
            host=None,
            placement=None,
            request_spec={**instance.request_spec, "host": migration.requested_host},
        )
    return asking


class Demands:
    """Turns wants into demands, each knowing where earlier ones of the same ask would go."""

    def __init__(self, uow: UnitOfWork, message: SelectHosts) -> None:
        self._uow = uow
        self._message = message
        self._rules: dict[str, GroupRule] = {}

    def of(self, instance: Instance) -> Demand:
        """Return the instance's demand; raise `Rejected` where it contradicts itself.

        Raises `Broken` for an instance that holds a host already: nobody may hold two.
        """
        if instance.host is not None:
            message = f"{instance.id} asks for a host while it holds {instance.host}"
            raise Broken("instance_holds_host", message, instance=instance.id, host=instance.host)
        hints = hints_of(instance)
        named = (*hints.with_instances, *hints.apart_from)
        others = self._uow.instances.where(id=named) if named else []
        around = Surroundings(
            self._message.alternates,
            frozenset(self._message.ignored),
            {other.id: other.host for other in others},
            self._rule(instance),
        )
        return demand_of(instance, around)

    def joined(self, demand: Demand, host: str) -> None:
        """Remember that the demand's instance would be on `host`, for the next of its group."""
        if demand.group is not None:
            self._rules[demand.group.name] = demand.group.joined_by(host)

    def _rule(self, instance: Instance) -> GroupRule | None:
        if instance.group is None:
            return None
        if instance.group not in self._rules:
            self._rules[instance.group] = group_rule(self._uow, instance.group)
        return replace(self._rules[instance.group], domain=hints_of(instance).domain)


def group_rule(uow: UnitOfWork, name: str, *, lock: bool = False) -> GroupRule:
    """Return a group's rule with its members as they are; raise `Rejected` for an unknown one.

    Locked, no other transaction that locks it places a member until this one ends.
    """
    read = uow.catalogue.lock if lock else uow.catalogue.get
    entry = read("server_group", name)
    if entry is None:
        raise Rejected("group_unknown", f"group is {name}: there is no such group", key="group")
    rule = rule_of(name, entry.body)
    return replace(rule, members=tuple(_members(uow, rule)))


def _members(uow: UnitOfWork, rule: GroupRule) -> Iterable[Member]:
    if rule.policy != "fault-domain":
        for host, count in sorted(uow.instances.hosts_of_group(rule.name).items()):
            yield from [Member(host)] * count
        return
    for instance in uow.instances.where(group=rule.name):
        if instance.host is not None and _lives(instance):
            yield Member(instance.host, hints_of(instance).domain)


def _lives(instance: Instance | None) -> bool:
    return instance is not None and instance.state is not InstanceState.DELETED
