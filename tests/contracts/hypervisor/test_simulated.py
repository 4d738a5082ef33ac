"""The simulated hypervisor keeps the contract of the port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.ids import InstanceId
from models.messages.guests.image_files import ImageFile
from tests.contracts.hypervisor.suite import HypervisorContract, Pair, pair_of
from tests.workers.world import HARDWARE
from workers.hypervisor.simulated import SimulatedHypervisor


class SimulatedHost:
    """A simulated host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hypervisor = SimulatedHypervisor(HARDWARE)

    def image(self) -> ImageFile:
        """An image that is a name only."""
        return ImageFile(id="tiny")

    def write(self, instance_id: InstanceId, text: str) -> None:
        """Write on the disk."""
        self.hypervisor.write_disk(instance_id, text)

    def read(self, instance_id: InstanceId) -> str:
        """What is on the disk."""
        domain = self.hypervisor.domain(instance_id)
        return (domain.disk if domain else None) or ""

    def crash(self, instance_id: InstanceId) -> None:
        """Have the guest crash."""
        self.hypervisor.crash(instance_id)

    def until_it_listens(self, instance_id: InstanceId) -> None:
        """Do nothing: simulated guests do at once."""


class TestSimulatedHypervisor(HypervisorContract):
    """The contract, on two simulations."""

    @pytest.fixture
    def pair(self) -> Iterator[Pair]:
        """Two simulated hosts."""
        yield from pair_of(SimulatedHost("A"), SimulatedHost("B"))
