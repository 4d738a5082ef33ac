"""Disks go from one host to another: by ticket only, whole or not at all."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from models.errors import HostRefused, Rejected, Unreachable
from models.messages.guests.root_disks import DiskImage
from tests.disks.test_host_disks import (
    VM,
    WORK,
    disks_in,
    image_in,
    root_content,
    spec_of,
    write_on,
)
from workers.disks.disk_offers import DiskOffers, OfferSettings
from workers.disks.disk_taking import take_disks
from workers.disks.host_disks import HostDisks


class Pair:
    """Two hosts, one with a guest that has written on its disk."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.source, self.target = disks_in(tmp_path / "a"), disks_in(tmp_path / "b", host="beta")
        image = image_in(tmp_path / "a")
        self.source.make(VM, spec_of(image, ephemeral_gib=1), WORK)
        write_on(self.source, "z")
        self.offers = self.serve(0)

    def serve(self, port: int) -> DiskOffers:
        settings = OfferSettings("127.0.0.1", port, self.folder / "keys")
        offers = DiskOffers(self.source, settings)
        offers.start()
        return offers

    def written(self, disks: HostDisks) -> bytes:
        return root_content(self.folder, disks)[:4096]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    (tmp_path / "a").mkdir()
    both = Pair(tmp_path)
    yield both
    both.offers.stop()


def test_a_disk_arrives_with_its_data_and_stays_at_its_source(pair: Pair) -> None:
    offered = pair.offers.offer(VM, WORK)
    assert take_disks(pair.target, VM, offered, WORK) == offered.checksum
    assert take_disks(pair.target, VM, offered, WORK) == offered.checksum
    assert pair.written(pair.target) == pair.written(pair.source) == b"z" * 4096
    assert [disk.name for disk in pair.target.files(VM)] == ["root", "ephemeral"]
    assert not list((pair.folder / "b").rglob("*.part"))


def test_a_ticket_is_worth_nothing_once_withdrawn_or_offered_anew(pair: Pair) -> None:
    old = pair.offers.offer(VM, WORK)
    new = pair.offers.offer(VM, WORK)
    with pytest.raises(HostRefused, match="404"):
        take_disks(pair.target, VM, old, WORK)
    assert take_disks(pair.target, VM, new, WORK) == new.checksum
    pair.offers.withdraw(VM)
    assert not list((pair.folder / "a").rglob("*.offer"))


def test_whoever_lacks_the_token_or_climbs_gets_nothing(pair: Pair) -> None:
    ticket = pair.offers.offer(VM, WORK).ticket
    context = ssl.create_default_context(cadata=ticket["certificate"])
    context.check_hostname = False
    with httpx.Client(verify=context, trust_env=False) as client:
        assert client.get(f"{ticket['url']}/root").status_code == 404
        client.headers["Authorization"] = f"Bearer {ticket['token']}"
        assert client.get(f"{ticket['url']}/root").status_code == 200
        for name in ("owner.json", "offer.json", "..%2f", ""):
            assert client.get(f"{ticket['url']}/{name}").status_code == 404


def test_another_certificate_is_not_spoken_to(pair: Pair, tmp_path: Path) -> None:
    offered = pair.offers.offer(VM, WORK)
    other = DiskOffers(pair.source, OfferSettings("127.0.0.1", 0, tmp_path / "other"))
    foreign = other.offer(VM, WORK).ticket["certificate"]
    other._server.server_close()
    changed = DiskImage(
        id=offered.id,
        checksum=offered.checksum,
        ticket={**offered.ticket, "certificate": foreign},
    )
    with pytest.raises(Unreachable, match="certificate"):
        take_disks(pair.target, VM, changed, WORK)


def test_what_is_damaged_on_the_way_is_not_kept(pair: Pair) -> None:
    offered = pair.offers.offer(VM, WORK)
    export = pair.folder / "a" / "disks" / VM / "root.offer"
    content = bytearray(export.read_bytes())
    content[-1] ^= 1
    export.write_bytes(content)
    with pytest.raises(HostRefused) as refused:
        take_disks(pair.target, VM, offered, WORK)
    assert refused.value.code == "disk_damaged"
    assert pair.target.files(VM) == ()


def test_an_offer_outlives_its_process_and_the_transfer_goes_on(pair: Pair) -> None:
    offered = pair.offers.offer(VM, WORK)
    port = pair.offers._server.server_port
    pair.offers.stop()
    with pytest.raises(Unreachable):
        take_disks(pair.target, VM, offered, WORK)
    pair.offers = pair.serve(port)
    assert take_disks(pair.target, VM, offered, WORK) == offered.checksum


def test_on_shared_storage_nothing_is_copied(pair: Pair) -> None:
    offered = pair.offers.offer(VM, WORK)
    beside = disks_in(pair.folder / "a", host="beta")
    before = beside.root(VM).path.stat().st_ino
    assert take_disks(beside, VM, offered, WORK) == offered.checksum
    assert beside.root(VM).path.stat().st_ino == before


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://127.0.0.1/../../etc"},
        {"url": "http://127.0.0.1:1/7d2f4a52-5f43-4a4e-9f3f-0b6a7a4d2a10"},
        {"files": []},
        {"files": [{"name": "../x", "format": "qcow2", "checksum": "", "size_bytes": 1}]},
    ],
)
def test_tickets_that_lead_elsewhere_are_refused(pair: Pair, changed: dict[str, object]) -> None:
    offered = pair.offers.offer(VM, WORK)
    odd = DiskImage(id=offered.id, checksum=offered.checksum, ticket={**offered.ticket, **changed})
    with pytest.raises((HostRefused, Rejected)):
        take_disks(pair.target, VM, odd, WORK)
