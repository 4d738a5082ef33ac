"""`images create --source`: a file that is here is looked at, and has to be what was stated."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.running import Cli, one_line


def raw_file(tmp_path: Path) -> Path:
    path = tmp_path / "disk.raw"
    path.write_bytes(b"disk" * 1024)
    return path


def test_size_checksum_and_format_of_a_file_are_found(here: Cli, tmp_path: Path) -> None:
    path = raw_file(tmp_path)
    created = here("images", "create", "mine", "--source", path)
    assert created.code == 0, created.err
    image = created.json
    assert image["source"] == path.as_uri()
    assert image["format"] == "raw"
    assert image["checksum"] == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert (image["size_bytes"], image["virtual_size_bytes"]) == (4096, 4096)


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        (("--format", "qcow2"), "format is qcow2"),
        (("--size", 5), "size_bytes is 5"),
        (("--checksum", "sha256:" + "0" * 64), "checksum is sha256:000"),
        (("--format", "iso"), "format is iso"),
    ],
)
def test_what_is_stated_has_to_be_what_is_found(
    here: Cli, tmp_path: Path, stated: tuple[object, ...], named: str
) -> None:
    refused = here("images", "create", "odd", "--source", raw_file(tmp_path), *stated)
    assert refused.code == 2
    assert named in refused.err
    assert one_line(refused.err)


def test_files_that_are_not_there_and_urls_without_proof_are_refused(here: Cli) -> None:
    missing = here("images", "create", "gone", "--source", "/nowhere/disk.raw")
    assert (missing.code, "no such file" in missing.err) == (2, True)
    url = here("images", "create", "far", "--source", "https://x.example/i.qcow2")
    assert url.code == 2
    assert "format is missing" in url.err


def test_an_instance_becomes_an_image(stocked: Cli) -> None:
    built = stocked(
        "build", "--name", "snapped", "--flavor", "small", "--image", "cirros", "--wait"
    )
    assert built.code == 0, built.err
    made = stocked("instances", "snapshot", "snapped", "--image-name", "kept", "--wait")
    assert made.code == 0, made.err
    names = [image.get("name") for image in stocked("images", "list", "-o", "json").json]
    assert "kept" in names
