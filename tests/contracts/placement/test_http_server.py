"""What only a real Placement server can show: its arithmetic, its credentials, its request ids."""

from contextlib import closing

import pytest
import structlog

from conductor.placement.http.http_client import PlacementClient
from conductor.placement.http.http_placement import HttpPlacement
from conductor.store import Inventory
from models.errors import NoValidHost, Rejected
from tests.contracts.placement.world import held, holder, make, new_id, used
from tests.environment.placement import PlacementServer


def test_room_that_the_server_does_not_see_for_its_binary_ratios_is_no_room(
    http_placement: HttpPlacement,
) -> None:
    made = make(http_placement, "host-1", {"VCPU": Inventory(100, 0, 1.15)})
    held(http_placement, made, {"VCPU": 114})
    with pytest.raises(NoValidHost) as refused:
        http_placement.write([holder({made.id: {"VCPU": 1}})])
    assert refused.value.code == "no_capacity"
    assert used(http_placement, made) == {"VCPU": 114}


@pytest.mark.parametrize("user", ["", "nobody@", "nobody:wrong@"])
def test_a_server_refuses_who_may_not_ask(placement_server: PlacementServer, user: str) -> None:
    url = placement_server.url.replace("://", f"://{user}")
    with closing(PlacementClient(url)) as client, pytest.raises(Rejected) as refused:
        HttpPlacement(client).check_credentials()
    assert refused.value.code == "placement_credentials"


def test_a_server_that_is_greeted_speaks_the_newest_version_that_we_know(
    placement_server: PlacementServer,
) -> None:
    with closing(PlacementClient(placement_server.url.replace("://", "://admin@"))) as client:
        HttpPlacement(client).check_credentials()
        assert client.version() == (1, 39)


def test_the_servers_own_request_id_is_logged_beside_ours(http_placement: HttpPlacement) -> None:
    ours = new_id()
    with structlog.testing.capture_logs() as logged:
        http_placement.on_behalf_of(ours).provider(new_id())
    assert logged[-1]["for_request"] == f"req-{ours}"
    assert logged[-1]["placement_request"].startswith("req-")
    assert logged[-1]["placement_request"] != f"req-{ours}"
