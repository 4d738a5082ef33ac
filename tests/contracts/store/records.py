"""Records with every nested value in them, to be changed where a test cares."""

from typing import Any

from conductor.store import (
    Allocation,
    CatalogueEntry,
    DeadLetter,
    Decision,
    Event,
    Heartbeat,
    Host,
    Instance,
    Inventory,
    Migration,
    OperationRecord,
    OutboxRow,
    Provider,
    Registration,
    Removal,
)
from models.hardware import (
    Flavor,
    HostCell,
    HostTopology,
    Image,
    PagePool,
    PciPool,
    PlacedCell,
    Placement,
)
from models.lifecycle import (
    InstanceState,
    MigrationKind,
    MigrationState,
    OperationState,
    PowerState,
    TaskState,
)

FLAVOR = Flavor("m1", 2, 512, 10, 5, 1_500, {"hw:cpu_policy": "dedicated"})
IMAGE = Image("img-1", "debian", {"hw_numa_nodes": 2, "traits_required": ["A", "B"], "on": True})
PLACEMENT = Placement(
    (
        PlacedCell(0, 1, 0, 0b11, 512, 2_048, ((0, 2), (1, 66)), 1 << 70, 0b1000),
        PlacedCell(1, 0, 0b1, 0, 256),
    ),
    "isolate",
)
CELLS = (
    HostCell(
        id=0,
        socket=0,
        shared_cpus=0b0011,
        dedicated_cpus=0b1100 | 1 << 70,
        memory_mib=4_096,
        siblings=(0b0101, 0b1010),
        page_pools=(PagePool(4, 1_048_576, 10, 5), PagePool(2_048, 64, 3, 1)),
        cpu_used=3,
        memory_used_mib=100,
        pinned_cpus=1 << 70,
        physnets=frozenset({"blue", "red"}),
        tunneled=True,
    ),
    HostCell(id=1, memory_mib=2_048, shared_cpus=0b1_0000),
)
TOPOLOGY = HostTopology(CELLS, (PciPool(0, 3, "8086", "1572", {"physnet": "red"}),))


def an_operation(name: str = "op-1", **changes: Any) -> OperationRecord:
    values: dict[str, Any] = {
        "id": name,
        "kind": "build",
        "definition_version": 1,
        "state": OperationState.ACCEPTED,
        "step": "schedule",
        "project_id": "p-1",
        "user_id": "ann",
        "request_id": "req-1",
        "request": {"count": 2, "names": ["a", "b"]},
        "digest": "abc",
        "data": {"deep": {"er": [1, 2.5, None, True, "é"]}},
        "created_at": 10.25,
        "updated_at": 11.5,
    }
    return OperationRecord(**{**values, **changes})


def a_full_operation(name: str = "op-full") -> OperationRecord:
    return an_operation(
        name,
        undoing=True,
        resume_step="claim",
        attempt=3,
        tries=2,
        sequence=9,
        waiting={"queue": "compute_a"},
        waiting_on="host-a",
        attempts=({"host": "a"}, {"host": "b"}),
        error={"code": "x"},
        cancel="delete",
        instance_id="i-1",
        parent_id="op-0",
        root_id="op-0",
        replay_of="op-9",
        reply_to="answers",
        children_left=4,
        wake_at=12.0,
        asked_at=11.0,
        deadline_at=99.0,
        ended_at=100.0,
    )


def an_instance(name: str = "i-1", **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "id": name,
        "name": "web",
        "project_id": "p-1",
        "user_id": "ann",
        "state": InstanceState.BUILDING,
        "flavor": FLAVOR,
        "image": IMAGE,
        "request_spec": {"networks": []},
        "created_at": 10.0,
        "updated_at": 10.0,
    }
    return Instance(**{**values, **changes})


def a_full_instance(name: str = "i-full") -> Instance:
    return an_instance(
        name,
        task_state=TaskState.SPAWNING,
        power_state=PowerState.RUNNING,
        host="h-1",
        group="g-1",
        availability_zone="north",
        placement=PLACEMENT,
        fault={"code": "no_valid_host"},
        fence=2**40,
        operation_id="op-1",
        deleted_at=50.5,
    )


def a_host(name: str = "h-1", **changes: Any) -> Host:
    values: dict[str, Any] = {
        "name": name,
        "topology": TOPOLOGY,
        "inventory": {"VCPU": Inventory(8, 1, 4.0), "MEMORY_MB": Inventory(6_144)},
        "used": {"VCPU": 3},
        "hypervisor": "simulated",
        "traits": ("HW_CPU_X86_AVX2", "CUSTOM_FAST"),
        "boot_id": "boot-1",
        "created_at": 5.0,
        "updated_at": 6.0,
    }
    return Host(**{**values, **changes})


def a_provider(provider_id: str = "p-1", **changes: Any) -> Provider:
    values: dict[str, Any] = {
        "name": f"name of {provider_id}",
        "parent_id": "root",
        "root_id": "root",
        "inventories": {"VGPU": Inventory(8, 1, 4.0, 2, 6, 2), "CUSTOM_FPGA": Inventory(3)},
        "used": {"VGPU": 2},
        "traits": frozenset({"CUSTOM_FAST", "HW_NIC_SRIOV"}),
        "aggregates": frozenset({"agg-1"}),
    }
    return Provider(provider_id, **{**values, **changes})


def an_allocation(consumer: str = "i-1", host: str = "h-1", **changes: Any) -> Allocation:
    values: dict[str, Any] = {"amounts": {"VCPU": 2}, "project_id": "p-1"}
    return Allocation(consumer, host, **{**values, **changes})


def a_migration(name: str = "m-1", **changes: Any) -> Migration:
    values: dict[str, Any] = {
        "instance_id": "i-1",
        "kind": MigrationKind.RESIZE,
        "state": MigrationState.MIGRATING,
        "operation_id": "op-1",
        "source": "h-1",
        "source_flavor": FLAVOR,
        "target_flavor": Flavor("m2", 4, 1_024),
        "created_at": 10.0,
        "updated_at": 11.0,
        "source_placement": PLACEMENT,
        "target": "h-2",
        "target_placement": PLACEMENT,
        "error": {"code": "no_valid_host", "message": "none"},
    }
    return Migration(name, **{**values, **changes})


def a_heartbeat(name: str = "h-1", seen_at: float = 20.0) -> Heartbeat:
    work = ({"verb": "snapshot", "for_s": 31.5},)
    return Heartbeat(name, "compute", seen_at, 1.0, 2.0, 3.0, work)


def a_registration(host: str = "h-1", **changes: Any) -> Registration:
    values: dict[str, Any] = {
        "worker_id": "w-1",
        "machine_id": "m-1",
        "machine_boot": "k-1",
        "boot_id": "b-1",
        "boot": 3,
        "registered_at": 20.0,
        "unexpected": ({"name": "vm", "fence": 0, "reason": "it has no record"},),
        "unexpected_count": 1,
        "refused": {"boot_id": "b-2", "reason": "another worker"},
        "notes": ({"code": "journal_missing", "message": "none"},),
        "troubled": True,
    }
    return Registration(host, **{**values, **changes})


def a_removal(name: str = "r-1", at: float = 10.0) -> Removal:
    return Removal(name, "i-1", "h-1", "op-1", 7, at)


def an_event(operation_id: str = "op-1", at: float = 10.0, event: str = "started") -> Event:
    return Event(operation_id, at, event, "because", instance_id="i-1")


def a_decision(name: str = "d-1", operation_id: str = "op-1", at: float = 10.0) -> Decision:
    return Decision(name, operation_id, "i-1", at, "h-1", {"rejected": {"ram": 3}})


def a_dead_letter(name: str = "l-1", at: float = 10.0, body: str = "{") -> DeadLetter:
    return DeadLetter(name, at, "conductor", "conductor.build", "not JSON", body, {"x": 1})


def an_outbox_row(name: str = "m-1", created_at: float = 10.0) -> OutboxRow:
    return OutboxRow(name, created_at, "scheduler", "select", {"a": [1]}, "op-0", "op-1", "shown")


def an_entry(name: str = "m1", kind: str = "flavor", created_at: float = 10.0) -> CatalogueEntry:
    return CatalogueEntry(kind, name, {"vcpus": 2}, created_at)
