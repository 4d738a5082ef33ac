"""The Placement server that the settings name, if they name one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from conductor.settings import Settings
from conductor.store import Store
from models.errors import Unreachable

if TYPE_CHECKING:
    from conductor.placement.http.http_placement import HttpPlacement
    from conductor.placement.sync.mirror import PlacementMirror

FOLLOW_EVERY_S: Final = 1.0

_log = structlog.get_logger(__name__)


def mirror_of(settings: Settings, store: Store) -> PlacementMirror | None:
    """Return the server's partner, greeted; None where no server is set.

    A server that is away is warned about: it may come back. Raises `Rejected` where it refuses
    our credentials, is too old or no Placement server: nothing would ever be claimed.
    """
    url = settings.placement_url.get_secret_value()
    if not url:
        return None
    from conductor.placement.sync.mirror import PlacementMirror  # noqa: PLC0415 - with what it speaks through

    placement = _server(url)
    try:
        placement.check_credentials()
    except Unreachable as error:
        _log.warning("placement is away", reason=error.message)
    return PlacementMirror(store, placement)


def check_credentials(url: str) -> None:
    """Ask the Placement server there whether it serves us; raise `Unreachable` or `Rejected`."""
    _server(url).check_credentials()


def _server(url: str) -> HttpPlacement:
    # Loaded only here: who has no server does not wait for an HTTP client at every start.
    from conductor.placement.http.http_client import PlacementClient  # noqa: PLC0415 - as said above
    from conductor.placement.http.http_placement import HttpPlacement  # noqa: PLC0415 - as said above

    return HttpPlacement(PlacementClient(url))
