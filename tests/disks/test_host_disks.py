"""The disks of a host's guests: made, grown, saved, removed; nothing lost when killed halfway."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.errors import Broken, HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import RootDisk
from tests.disks.image_files import content, declared, qcow2_file, qemu_img
from workers.disks.disk_records import used_bases
from workers.disks.host_disks import DiskSettings, HostDisks
from workers.disks.shared_storage import storage_id
from workers.images.directory_store import DirectoryStore
from workers.images.file_work import FileWork
from workers.images.image_cache import CacheSettings, ImageCache

VM = InstanceId("7d2f4a52-5f43-4a4e-9f3f-0b6a7a4d2a10")
WORK = FileWork()
GIB = 1 << 30


def cache_of(tmp_path: Path) -> ImageCache:
    store = DirectoryStore(tmp_path / "store")
    settings = CacheSettings(tmp_path / "cache", 1, (tmp_path,), store)
    return ImageCache(settings, lambda: used_bases(tmp_path / "disks"))


def disks_in(tmp_path: Path, *, flat: bool = False, host: str = "alpha") -> HostDisks:
    store = DirectoryStore(tmp_path / "store")
    settings = DiskSettings(tmp_path / "disks", host, flat, store)
    return HostDisks(settings, cache_of(tmp_path))


def image_in(tmp_path: Path, seed: int = 1) -> ImageFile:
    path = tmp_path / f"image{seed}.qcow2"
    if not path.exists():
        qcow2_file(path, 2, seed)
    return declared(path, path.as_uri())


def spec_of(image: ImageFile | None, **changed: object) -> GuestDefinition:
    fields: dict[str, object] = {
        "name": "vm",
        "vcpus": 1,
        "memory_mib": 64,
        "disk_gb": 1,
        "root_gib": 1,
        "image": image,
    }
    return GuestDefinition.model_validate(fields | changed)


def root_content(tmp_path: Path, disks: HostDisks) -> bytes:
    root, flat = disks.root(VM), tmp_path / "read.raw"
    qemu_img("convert", "-f", root.format, "-O", "raw", root.path, flat)
    with flat.open("rb") as read:
        return read.read(2 << 20)


def write_on(disks: HostDisks, text: str) -> None:
    root = disks.root(VM)
    command = f"write -q -P {ord(text)} 0 4096"
    subprocess.run(["qemu-io", "-f", root.format, "-c", command, root.path], check=True)


@pytest.mark.parametrize("flat", [False, True])
def test_disks_are_made_once_and_kept(tmp_path: Path, flat: bool) -> None:
    disks = disks_in(tmp_path, flat=flat)
    spec = spec_of(image_in(tmp_path), ephemeral_gib=1, swap_mib=8)
    made = disks.make(VM, spec, WORK)
    assert [(disk.name, disk.virtual_size_bytes) for disk in made] == [
        ("root", GIB),
        ("ephemeral", GIB),
        ("swap", 8 << 20),
    ]
    assert made[2].path.read_bytes()[4086:4096] == b"SWAPSPACE2"
    assert root_content(tmp_path, disks) == content(2)
    write_on(disks, "x")
    assert disks.make(VM, spec, WORK) == made
    assert root_content(tmp_path, disks).startswith(b"x" * 4096)


def test_an_image_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    big = tmp_path / "big.qcow2"
    qemu_img("create", "-f", "qcow2", big, "2G")
    with pytest.raises(HostRefused, match="root_gib is 1") as refused:
        disks_in(tmp_path).make(VM, spec_of(declared(big, big.as_uri())), WORK)
    assert refused.value.code == "disk_too_small"


@pytest.mark.parametrize("flat", [False, True])
def test_disks_grow_and_never_shrink(tmp_path: Path, flat: bool) -> None:
    disks = disks_in(tmp_path, flat=flat)
    image = image_in(tmp_path)
    disks.make(VM, spec_of(image, ephemeral_gib=1, swap_mib=8), WORK)
    disks.resize(VM, spec_of(image, root_gib=2, ephemeral_gib=2, swap_mib=4), WORK)
    sizes = {disk.name: disk.virtual_size_bytes for disk in disks.files(VM)}
    assert sizes == {"root": 2 * GIB, "ephemeral": 2 * GIB, "swap": 4 << 20}
    assert root_content(tmp_path, disks) == content(2)
    for smaller in ({"root_gib": 1, "ephemeral_gib": 2}, {"root_gib": 2, "ephemeral_gib": 0}):
        with pytest.raises(HostRefused, match="cannot shrink"):
            disks.resize(VM, spec_of(image, **smaller), WORK)


def test_a_base_stays_as_long_as_a_disk_stands_on_it(tmp_path: Path) -> None:
    disks, cache = disks_in(tmp_path), cache_of(tmp_path)
    disks.make(VM, spec_of(image_in(tmp_path)), WORK)
    assert cache.age_out(0) == ()
    disks.remake_root(VM, spec_of(image_in(tmp_path, seed=2)), WORK)
    assert root_content(tmp_path, disks) == content(2, 2)
    assert len(cache.age_out(0)) == 1
    disks.remove(VM)
    disks.remove(VM)
    assert len(cache.age_out(0)) == 1


def test_a_snapshot_has_the_data_and_a_guest_made_of_it_too(tmp_path: Path) -> None:
    disks = disks_in(tmp_path)
    spec = spec_of(image_in(tmp_path))
    disks.make(VM, spec, WORK)
    write_on(disks, "y")
    saved = disks.snapshot(VM, WORK)
    assert disks.snapshot(VM, WORK) == saved
    disks.remove(VM)
    source = RootDisk(origin="snapshot", disk=saved)
    disks.make(VM, spec_of(spec.image, root_disk=source), WORK)
    assert root_content(tmp_path, disks).startswith(b"y" * 4096)


def test_disks_whose_owner_is_unproven_are_not_touched(tmp_path: Path) -> None:
    disks = disks_in(tmp_path)
    disks.make(VM, spec_of(image_in(tmp_path)), WORK)
    record = tmp_path / "disks" / VM / "owner.json"
    record.write_text(record.read_text().replace(VM, VM.replace("7", "8")))
    with pytest.raises(Broken, match="no record of its owner"):
        disks.remove(VM)
    with pytest.raises(Broken):
        cache_of(tmp_path).age_out(0)
    assert disks.root(VM).path.exists()


def test_on_shared_storage_a_host_does_not_remove_what_another_has_now(tmp_path: Path) -> None:
    source, target = disks_in(tmp_path), disks_in(tmp_path, host="beta")
    source.make(VM, spec_of(image_in(tmp_path)), WORK)
    target.move_here(VM)
    source.remove(VM)
    assert target.root(VM).path.exists()
    with pytest.raises(Broken, match="those of host beta"):
        source.make(VM, spec_of(image_in(tmp_path)), WORK)
    target.remove(VM)
    assert target.files(VM) == ()


def test_storage_is_shared_where_the_marker_is(tmp_path: Path) -> None:
    assert storage_id(tmp_path / "a") == storage_id(tmp_path / "a")
    assert storage_id(tmp_path / "a") != storage_id(tmp_path / "b")


@pytest.mark.parametrize("instance_id", ["../x", "", "a" * 36, VM.upper()])
def test_ids_that_lead_elsewhere_are_refused(tmp_path: Path, instance_id: str) -> None:
    with pytest.raises(HostRefused, match="should be a UUID"):
        disks_in(tmp_path).remove(InstanceId(instance_id))


_MAKE = """
import sys
from pathlib import Path
from tests.disks.test_host_disks import *
tmp_path = Path(sys.argv[1])
disks = disks_in(tmp_path, flat=sys.argv[2] == "flat")
print("ready", flush=True)
spec = spec_of(image_in(tmp_path), ephemeral_gib=1, swap_mib=8)
disks.make(VM, spec, WORK)
disks.snapshot(VM, WORK)
disks.remake_root(VM, spec, WORK)
disks.remove(VM)
"""


@pytest.mark.parametrize("flat", ["flat", "overlay"])
@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.2, 0.3, 0.5])
def test_what_was_killed_at_any_point_is_made_whole_by_the_next(
    tmp_path: Path, flat: str, after_s: float
) -> None:
    image = image_in(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", _MAKE, str(tmp_path), flat], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after_s)
    child.kill()
    child.wait()
    child.stdout.close()
    disks = disks_in(tmp_path, flat=flat == "flat")
    disks.make(VM, spec_of(image, ephemeral_gib=1, swap_mib=8), WORK)
    assert root_content(tmp_path, disks) == content(2)
    names = {path.name for path in (tmp_path / "disks" / VM).glob("*.making")}
    assert names == set()
    disks.remove(VM)
    assert not list((tmp_path / "disks").iterdir())
