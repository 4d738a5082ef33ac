"""The image cache of a host, against a real server and a real qemu-img."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from models.errors import HostRefused, Unreachable
from models.messages.guests.image_files import ImageFile
from tests.disks.content_server import ContentServer, serving
from tests.disks.image_files import MIB, content, declared, qcow2_file, qemu_img, raw_file
from tests.limits import wait_for
from workers.images.directory_store import DirectoryStore
from workers.images.file_work import FileWork
from workers.images.image_cache import CacheSettings, ImageCache

WORK = FileWork()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ContentServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(folder) as server:
        yield server


def cache_in(tmp_path: Path, used: frozenset[str] = frozenset(), gib: int = 1) -> ImageCache:
    settings = CacheSettings(tmp_path / "cache", gib, (tmp_path,), DirectoryStore(tmp_path / "s"))
    return ImageCache(settings, lambda: used)


def have(cache: ImageCache, image: ImageFile, work: FileWork = WORK) -> bytes:
    with cache.using(image, work) as base:
        assert base.path.stat().st_size == base.virtual_size_bytes
        return base.path.read_bytes()


def left(tmp_path: Path) -> set[str]:
    return {path.suffix for path in (tmp_path / "cache").iterdir()}


def test_a_qcow2_image_becomes_a_flat_base_with_its_content(
    tmp_path: Path, served: ContentServer
) -> None:
    path = qcow2_file(served.folder / "a.qcow2")
    seen: list[int] = []
    cache = cache_in(tmp_path)
    image = declared(path, f"{served.url}/a.qcow2")
    assert have(cache, image, FileWork(on_progress=seen.append)) == content(2)
    assert cache.images() == {"debian"}
    assert 100 in seen
    assert left(tmp_path) == {".base", ".proof", ".lock"}


def test_an_image_is_fetched_once_however_many_wait(tmp_path: Path, served: ContentServer) -> None:
    image = declared(raw_file(served.folder / "a.raw"), f"{served.url}/a.raw")
    caches = [cache_in(tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda cache: have(cache, image), caches))
    assert found == [content(2)] * 6
    assert len(served.gets) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_what_came_before_a_cut_is_not_fetched_again(
    tmp_path: Path, served: ContentServer, ranges: bool
) -> None:
    image = declared(raw_file(served.folder / "a.raw"), f"{served.url}/a.raw")
    cache = cache_in(tmp_path)
    served.cut_after, served.ranges = 2**20 + 5, ranges
    with pytest.raises(Unreachable, match=r"fetched|ended"):
        have(cache, image)
    served.cut_after = None
    assert have(cache, image) == content(2)
    assert served.gets[1] == ("/a.raw", f"bytes={2**20 + 5}-")


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"checksum": "sha256:" + "0" * 64}, "checksum"),
        ({"size_bytes": 1000}, "more than the 1000 bytes"),
    ],
)
def test_content_that_is_not_what_was_declared_is_not_kept(
    tmp_path: Path, served: ContentServer, changed: dict[str, object], rule: str
) -> None:
    path = raw_file(served.folder / "a.raw")
    cache = cache_in(tmp_path)
    with pytest.raises(Unreachable, match=rule) as refused:
        have(cache, declared(path, f"{served.url}/a.raw", **changed))
    assert refused.value.code == "image_corrupt"
    assert left(tmp_path) == {".lock"}


def _backed(path: Path) -> None:
    qemu_img("create", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", path)


def _json_backed(path: Path) -> None:
    qemu_img("create", "-u", "-f", "qcow2", "-b", 'json:{"driver":"nbd"}', "-F", "raw", path, "1M")


def _external(path: Path) -> None:
    data = path.with_suffix(".data")
    qemu_img("create", "-f", "qcow2", "-o", f"data_file={data},data_file_raw=on", path, "1M")


def _encrypted(path: Path) -> None:
    # Not LUKS: for its key QEMU measures the CPU, and gives up where that is busy.
    secret = "secret,id=s,data=abc"
    options = "encrypt.format=aes,encrypt.key-secret=s"
    qemu_img("create", "--object", secret, "-f", "qcow2", "-o", options, path, "1M")


def _snapshotted(path: Path) -> None:
    qcow2_file(path)
    qemu_img("snapshot", "-c", "inner", path)


def _vmdk(path: Path) -> None:
    qemu_img("create", "-f", "vmdk", "-o", "subformat=monolithicFlat", path, "1M")


def _iso(path: Path) -> None:
    path.write_bytes(b"\0" * 32_768 + b"\x01CD001\x01" + b"\0" * 2048)


def _truncated(path: Path) -> None:
    qcow2_file(path)
    os.truncate(path, MIB)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("trap", "code"),
    [
        (_backed, "image_unsafe"),
        (_json_backed, "image_unsafe"),
        (_external, "image_unsafe"),
        (_encrypted, "image_unsafe"),
        (_snapshotted, "image_unsafe"),
        (_vmdk, "image_format"),
        (_iso, "image_format"),
        (_truncated, "image_damaged"),
        (_empty, "image_format"),
    ],
)
def test_images_that_are_traps_or_broken_are_refused(
    tmp_path: Path, served: ContentServer, trap: object, code: str
) -> None:
    path = served.folder / "a.qcow2"
    trap(path)  # type: ignore[operator]  # a function of the table above
    cache = cache_in(tmp_path)
    with pytest.raises(HostRefused) as refused:
        have(cache, declared(path, f"{served.url}/a.qcow2"))
    assert refused.value.code == code
    assert left(tmp_path) == {".lock"}


def test_an_image_declared_raw_is_raw_whatever_it_looks_like(
    tmp_path: Path, served: ContentServer
) -> None:
    path = served.folder / "a.raw"
    _backed(path)
    found = have(cache_in(tmp_path), declared(path, f"{served.url}/a.raw"))
    assert found == path.read_bytes()


def test_a_disk_larger_than_declared_is_refused(tmp_path: Path, served: ContentServer) -> None:
    path = qcow2_file(served.folder / "a.qcow2")
    image = declared(path, f"{served.url}/a.qcow2", virtual_size_bytes=MIB)
    with pytest.raises(HostRefused, match="declared are 1048576") as refused:
        have(cache_in(tmp_path), image)
    assert refused.value.code == "image_too_large"


def test_a_damaged_base_is_noticed_and_fetched_again(tmp_path: Path, served: ContentServer) -> None:
    image = declared(raw_file(served.folder / "a.raw"), f"{served.url}/a.raw")
    cache = cache_in(tmp_path)
    have(cache, image)
    base = next((tmp_path / "cache").glob("*.base"))
    base.chmod(0o644)
    damaged = bytearray(content(2))
    damaged[7] ^= 1
    base.write_bytes(damaged)
    assert cache.images() == frozenset()
    assert have(cache, image) == content(2)
    os.utime(base)
    assert have(cache, image) == content(2)
    assert len(served.gets) == 2


def test_what_no_disk_uses_ages_out_and_what_one_uses_stays(
    tmp_path: Path, served: ContentServer
) -> None:
    first = declared(raw_file(served.folder / "a.raw"), f"{served.url}/a.raw", id="a")
    second = declared(raw_file(served.folder / "b.raw", seed=2), f"{served.url}/b.raw", id="b")
    cache = cache_in(tmp_path)
    with cache.using(first, WORK) as base:
        have(cache, second)
        key = base.key
        assert len(cache.age_out(0)) == 1
        assert cache.images() == {"a"}
    assert cache_in(tmp_path, frozenset({key})).age_out(0) == ()
    assert cache.age_out(3600) == ()
    assert cache.age_out(0) == (key,)
    assert left(tmp_path) == {".lock"}


def test_the_budget_is_kept_by_removing_what_is_unused_and_else_refused(
    tmp_path: Path, served: ContentServer
) -> None:
    cache = cache_in(tmp_path, gib=0)
    image = declared(raw_file(served.folder / "a.raw"), f"{served.url}/a.raw")
    with pytest.raises(HostRefused, match="0 is its budget") as refused:
        have(cache, image)
    assert refused.value.code == "image_cache_full"
    assert served.gets == []


def test_a_full_disk_is_refused_and_nothing_stays(tmp_path: Path, served: ContentServer) -> None:
    mounted = tmp_path / "cache"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", mounted], check=True)
    try:
        raw = declared(raw_file(served.folder / "a.raw", 6), f"{served.url}/a.raw")
        with pytest.raises(HostRefused, match="no space left") as refused:
            have(cache_in(tmp_path), raw)
        assert refused.value.code == "disk_full"
        qcow2 = declared(qcow2_file(served.folder / "b.qcow2", 2), f"{served.url}/b.qcow2")
        with pytest.raises(HostRefused, match="No space left"):
            have(cache_in(tmp_path), qcow2)
        assert left(tmp_path) == {".lock"}
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_an_abort_ends_a_fetch_and_what_came_is_kept(tmp_path: Path, served: ContentServer) -> None:
    image = declared(raw_file(served.folder / "a.raw", 8), f"{served.url}/a.raw")
    aborted = Event()
    work = FileWork(aborted, lambda percent: aborted.set() if percent > 20 else None)
    with pytest.raises(HostRefused) as refused:
        have(cache_in(tmp_path), image, work)
    assert refused.value.code == "aborted"
    assert have(cache_in(tmp_path), image) == content(8)
    assert served.gets[1][1] is not None


@pytest.mark.parametrize("source", ["file:///etc/hostname", "ftp://x/y", "store:../../etc/passwd"])
def test_sources_outside_of_what_the_host_allows_are_refused(tmp_path: Path, source: str) -> None:
    image = declared(raw_file(tmp_path / "x.raw"), source)
    with pytest.raises(HostRefused):
        have(cache_in(tmp_path), image)


def test_links_do_not_lead_out_of_the_image_folders(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    outside = raw_file(tmp_path / "a.raw")
    (inside / "a.raw").symlink_to(outside)
    cache = ImageCache(CacheSettings(tmp_path / "cache", 1, (inside,)), frozenset)
    with pytest.raises(HostRefused, match="image folders"):
        have(cache, declared(outside, (inside / "a.raw").as_uri()))


_FETCH = """
import sys
from tests.disks.test_image_cache import cache_in, have
from models.messages.guests.image_files import ImageFile
from workers.images.file_work import FileWork
from pathlib import Path
have(cache_in(Path(sys.argv[1])), ImageFile.model_validate_json(sys.argv[2]),
     FileWork(bytes_per_s=int(sys.argv[3])))
"""


def test_a_fetch_that_was_killed_is_continued_by_the_next(
    tmp_path: Path, served: ContentServer
) -> None:
    image = declared(qcow2_file(served.folder / "a.qcow2", 8), f"{served.url}/a.qcow2")
    args = [sys.executable, "-c", _FETCH, str(tmp_path), image.model_dump_json(), str(2 * MIB)]
    child = subprocess.Popen(args)
    try:
        wait_for(lambda: _part_bytes(tmp_path) > MIB, "a part of the image")
    finally:
        child.kill()
        child.wait()
    assert have(cache_in(tmp_path), image) == content(8)
    assert left(tmp_path) == {".base", ".proof", ".lock"}
    assert served.gets[-1][1] is not None


def _part_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.part"))


def test_a_rate_is_kept(tmp_path: Path, served: ContentServer) -> None:
    image = declared(raw_file(served.folder / "a.raw", 2), f"{served.url}/a.raw")
    before = time.monotonic()
    have(cache_in(tmp_path), image, FileWork(bytes_per_s=8 * MIB))
    assert time.monotonic() - before >= 0.2
