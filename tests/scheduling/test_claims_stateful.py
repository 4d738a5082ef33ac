"""Any interleaving of claims, releases, repeats and old views keeps every host's accounts exact."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from conductor.placement.local.instance_allocations import release_instance
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from models.hardware import Flavor
from models.messages.internal import SelectHosts
from tests.invariants import assert_invariants
from tests.scheduling.world import World, flavor, host, pinned

FLAVORS = st.sampled_from(
    [
        flavor(vcpus=2, memory_mib=512),
        flavor(vcpus=5, memory_mib=3000),
        flavor(vcpus=4, memory_mib=2048, **{"hw:numa_nodes": "2"}),
        pinned(vcpus=1, memory_mib=256),
        pinned(vcpus=3, memory_mib=1000),
        pinned(vcpus=4, memory_mib=4096, **{"hw:numa_nodes": "2"}),
        pinned(vcpus=2, memory_mib=512, **{"hw:emulator_threads_policy": "isolate"}),
    ]
)
GROUPS = st.sampled_from([None, "apart", "together"])


class Claims(RuleBasedStateMachine):
    """Two schedulers with old views of one fleet; instances come in ones and threes, and go."""

    asked = Bundle("asked")
    placed = Bundle("placed")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=SchedulingSettings(refresh_s=3600))
        self.world.add_hosts(
            host("a"),
            host("b", cells=1, dedicated=6),
            host("c", shared=2, memory_mib=4096),
        )
        self.world.define("server_group", "apart", policy="anti-affinity")
        self.world.define("server_group", "together", policy="affinity")
        self.schedulers = [
            Scheduler(self.world.store, SchedulingSettings(strategy=strategy, refresh_s=3600))
            for strategy in ("spread", "pack")
        ]

    @rule(target=asked, wanted=FLAVORS, count=st.sampled_from([1, 1, 3]), group=GROUPS)
    def ask(self, wanted: Flavor, count: int, group: str | None) -> SelectHosts:
        instances = [self.world.add_instance(wanted, group=group) for _ in range(count)]
        return self.world.ask(*instances)

    @rule(target=placed, message=asked, which=st.integers(0, 1))
    def answer(self, message: SelectHosts, which: int) -> list[str]:
        outgoing_messages = self.schedulers[which].handle(message)
        result = outgoing_messages[0].body.get("result", {})
        return [item["instance_id"] for item in result.get("selected", ())]

    @rule(instances=consumes(placed))
    def release_host(self, instances: list[str]) -> None:
        with self.world.store.begin() as uow:
            for instance in uow.instances.lock_many(instances).values():
                uow.instances.save(release_instance(uow, instance))

    @invariant()
    def accounts_are_exact(self) -> None:
        assert_invariants(self.world.store)

    @invariant()
    def groups_keep_their_rules(self) -> None:
        with self.world.store.read() as uow:
            assert all(count == 1 for count in uow.instances.hosts_of_group("apart").values())
            assert len(uow.instances.hosts_of_group("together")) <= 1


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
