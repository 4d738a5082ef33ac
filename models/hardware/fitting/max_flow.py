"""Sharing stocks out among requests that may use only some of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.hardware.fitting.bipartite_matching import Places, members


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Requests that go short together; all requests together go short by `missing`.

    The stocks that `requests` (bit n is request n) reach hold less than they want: Hall's
    condition, found as the cut of a maximum flow.
    """

    requests: int
    missing: int


def shortfall(
    wants: Sequence[int], stock: Sequence[int], open_database: Sequence[Places]
) -> Shortfall | None:
    """Return what cannot be served, None when everything can.

    Request r wants `wants[r]` pieces from the stocks in `reach[r]`.
    """
    sharing = _Sharing(stock, open_database)
    requests = missing = 0
    for request, want in enumerate(wants):
        unserved = sharing.serve(request, want)
        if unserved and not requests:
            requests = sum(1 << asked for asked in sharing.asked)
        missing += unserved
    return Shortfall(requests, missing) if missing else None


def shared_out(
    wants: Sequence[int], stock: Sequence[int], open_database: Sequence[Places]
) -> list[dict[int, int]] | None:
    """Return how much each request gets of which stock, None when not everything can be served.

    Stocks that come first are taken first, as far as all are served in the end.
    """
    sharing = _Sharing(stock, open_database)
    if any(sharing.serve(request, want) for request, want in enumerate(wants)):
        return None
    return sharing.given


class _Sharing:
    """A flow from stocks to requests that grows along augmenting paths."""

    def __init__(self, stock: Sequence[int], open_database: Sequence[Places]) -> None:
        self._spare = list(stock)
        self.given = [dict.fromkeys(members(stocks), 0) for stocks in open_database]
        self.asked: set[int] = set()

    def serve(self, request: int, want: int) -> int:
        """Give the request what it wants, moving others; return how much is missing."""
        while want:
            self.asked = set()
            moved = self._push(request, want)
            if not moved:
                return want
            want -= moved
        return 0

    def _push(self, request: int, amount: int) -> int:
        """Give the request up to `amount` more; return how much it got, 0 when there is no way."""
        self.asked.add(request)
        given = self.given[request]
        for stock in given:
            moved = min(amount, self._spare[stock])
            if moved:
                self._spare[stock] -= moved
                given[stock] += moved
                return moved
        for stock in given:
            for other, theirs in enumerate(self.given):
                if other in self.asked or not theirs.get(stock):
                    continue
                moved = self._push(other, min(amount, theirs[stock]))
                if moved:
                    theirs[stock] -= moved
                    given[stock] += moved
                    return moved
        return 0
