"""Both image stores keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import HostRefused, Rejected
from tests.disks.content_server import serving
from tests.disks.image_files import raw_file
from workers.images.file_work import FileWork, checksum_of
from workers.images.image_store import ImageStore, stored_name
from workers.images.open_image_store import open_store

WORK = FileWork()


@pytest.fixture(params=["file", "http"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImageStore]:
    folder = tmp_path / "store"
    folder.mkdir()
    if request.param == "file":
        yield open_store(folder.as_uri())
        return
    with serving(folder) as server:
        yield open_store(server.url)


def test_what_is_put_is_listed_found_and_removed_by_proof(
    store: ImageStore, tmp_path: Path
) -> None:
    path = raw_file(tmp_path / "a.raw")
    checksum = store.put("one.raw", path, WORK)
    assert checksum == checksum_of(path, WORK)
    assert store.put("one.raw", path, WORK) == checksum
    assert store.names() == {"one.raw"}
    with pytest.raises(HostRefused, match="nothing was changed"):
        store.remove("one.raw", "sha256:" + "0" * 64, WORK)
    store.remove("one.raw", checksum, WORK)
    store.remove("one.raw", checksum, WORK)
    assert store.names() == frozenset()


def test_a_name_never_changes_its_content(store: ImageStore, tmp_path: Path) -> None:
    store.put("one.raw", raw_file(tmp_path / "a.raw"), WORK)
    with pytest.raises(HostRefused) as refused:
        store.put("one.raw", raw_file(tmp_path / "b.raw", seed=2), WORK)
    assert refused.value.code == "store_conflict"


@pytest.mark.parametrize(
    "source", ["store:../x.raw", "store:a/b.raw", "file:///etc/passwd", "store:.raw", "a.raw", ""]
)
def test_names_that_lead_elsewhere_are_refused(source: str) -> None:
    with pytest.raises(HostRefused):
        stored_name(source)


@pytest.mark.parametrize("url", ["file://host/x", "ftp://x/", "x", "http://"])
def test_other_urls_are_no_stores(url: str) -> None:
    with pytest.raises(Rejected, match="image store is"):
        open_store(url)
