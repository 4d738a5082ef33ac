"""What an image's content is reaches the host, and never becomes something else."""

from __future__ import annotations

import pytest

from models.lifecycle import OperationState
from models.messages.guests.image_files import ImageFile
from tests.operations.test_moves import ask, built, error_code
from tests.operations.test_volumes_and_images import define
from tests.operations.world import SHARED, World

SUM = "sha256:" + "a" * 64
FILE = {
    "id": "i",
    "source": "https://images.example.org/i.qcow2",
    "format": "qcow2",
    "checksum": SUM,
    "size_bytes": 1000,
    "virtual_size_bytes": 3 * 2**30,
}


def test_a_host_is_told_where_the_content_of_an_image_is() -> None:
    world = World(hosts=1)
    define(world, "image", FILE)
    instance_id = built(world, {**SHARED, "root_gb": 5}, image="i")
    domain = world.hosts["host-0"].hypervisor.domain(instance_id)
    assert domain is not None
    assert domain.spec is not None
    assert domain.spec.image == ImageFile.model_validate(FILE)


def test_a_disk_smaller_than_the_content_is_refused() -> None:
    world = World(hosts=1)
    operation = world.build({**SHARED, "root_gb": 2}, image=FILE)
    world.run_out()
    assert error_code(world, operation) == "flavor_disk_too_small"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"source": "ftp://x/y"}, "image_source_invalid"),
        ({"checksum": None}, "image_source_incomplete"),
        ({"source": None}, "image_source_incomplete"),
    ],
)
def test_a_source_that_says_too_little_is_refused(changed: dict[str, object], code: str) -> None:
    world = World(hosts=1)
    body = {name: value for name, value in (FILE | changed).items() if value is not None}
    operation = world.submit("define_entry", {"entry": "image", "body": body})
    build = world.build(SHARED, image=body)
    world.run_out()
    assert error_code(world, operation) == code
    assert error_code(world, build) == code


def test_an_id_does_not_come_to_mean_other_content_and_a_needed_image_stays() -> None:
    world = World(hosts=1)
    define(world, "image", FILE)
    other = {**FILE, "checksum": "sha256:" + "b" * 64}
    inline = world.build(SHARED, image=other)
    world.run_out()
    assert error_code(world, inline) == "image_content_differs"
    instance_id = built(world, {**SHARED, "root_gb": 5}, image="i")
    removal = world.submit("remove_entry", {"entry": "image", "name": "i"})
    world.run_out()
    assert error_code(world, removal) == "image_in_use"
    assert world.ended(ask(world, "delete_instance", instance_id)) is OperationState.SUCCEEDED
    removal = world.submit("remove_entry", {"entry": "image", "name": "i"})
    world.run_out()
    assert world.ended(removal) is OperationState.SUCCEEDED


def test_content_that_instances_have_cannot_be_defined_as_something_else() -> None:
    world = World(hosts=1)
    built(world, {**SHARED, "root_gb": 5}, image=FILE)
    other = {**FILE, "checksum": "sha256:" + "b" * 64}
    operation = world.submit("define_entry", {"entry": "image", "body": other})
    world.run_out()
    assert error_code(world, operation) == "image_content_differs"


def test_a_snapshot_is_an_image_that_others_are_built_from() -> None:
    world = World(hosts=1)
    image = {"id": "i", "properties": {"hw_machine_type": "q35"}, "min_memory_mb": 16}
    instance_id = built(world, {**SHARED, "root_gb": 5}, image=image)
    operation = ask(world, "snapshot_instance", instance_id, image_name="mine")
    assert world.ended(operation) is OperationState.SUCCEEDED
    with world.store.read() as uow:
        (entry,) = uow.catalogue.where(kind="image")
    assert (entry.body["name"], entry.body["min_disk_gb"]) == ("mine", 5)
    assert entry.body["properties"] == image["properties"]
    assert built(world, {**SHARED, "root_gb": 5}, image="mine")


def test_a_disk_on_a_volume_is_not_saved_by_its_host() -> None:
    world = World(hosts=1)
    instance_id = built(world, SHARED, image=None, block_devices=[{"volume_id": "v"}])
    assert error_code(world, ask(world, "snapshot_instance", instance_id)) == "no_local_disk"
