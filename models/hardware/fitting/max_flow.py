"""Maximum flow from stocks of devices to requests that may use only some of the stocks.

Ford and Fulkerson's augmenting paths, depth-first. A path moves as many devices at once as its
narrowest edge allows; the sizes are some requests and some stocks, so a path is O(requests *
stocks) and few are needed. When no path is left the requests met are the minimum cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.bit_sets import set_bits

Stocks: TypeAlias = int
"""A set of stocks: bit n is set when stock n is a member."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Requests that go short together; all requests together go short by `missing`.

    The stocks that `requests` (bit n is request n) may use hold less than they need: Hall's
    condition violated, found as the minimum cut of a maximum flow.
    """

    requests: int
    missing: int


def find_shortfall(
    needs: Sequence[int], stock: Sequence[int], usable: Sequence[Stocks]
) -> Shortfall | None:
    """Return what cannot be served, None when everything can.

    Request r needs `needs[r]` devices from the stocks in `usable[r]`.
    """
    flow = _Flow(stock, usable)
    requests = missing = 0
    for request, need in enumerate(needs):
        unserved = flow.serve(request, need)
        if unserved and not requests:
            # The last search found no path: what it reached is the cut.
            requests = sum(1 << reached for reached in flow.reached)
        missing += unserved
    return Shortfall(requests, missing) if missing else None


def distribute(
    needs: Sequence[int], stock: Sequence[int], usable: Sequence[Stocks]
) -> list[dict[int, int]] | None:
    """Return how much each request gets of which stock, None when not everything can be served.

    Stocks that come first are used first, as far as all are served in the end.
    """
    flow = _Flow(stock, usable)
    if any(flow.serve(request, need) for request, need in enumerate(needs)):
        return None
    return flow.given


class _Flow:
    """A flow from stocks to requests that grows along augmenting paths."""

    def __init__(self, stock: Sequence[int], usable: Sequence[Stocks]) -> None:
        self._spare = list(stock)
        self.given = [dict.fromkeys(set_bits(stocks), 0) for stocks in usable]
        self.reached: set[int] = set()
        """The requests that the last search for a path has visited."""

    def serve(self, request: int, need: int) -> int:
        """Give the request what it needs, rerouting others; return how much is missing."""
        while need:
            self.reached = set()
            moved = self._augment(request, need)
            if not moved:
                return need
            need -= moved
        return 0

    def _augment(self, request: int, amount: int) -> int:
        """Give the request up to `amount` more along one path; return how much, 0 for no path."""
        self.reached.add(request)
        given = self.given[request]
        # 1. Straight from a stock that has some left: O(stocks).
        for stock in given:
            moved = min(amount, self._spare[stock])
            if moved:
                self._spare[stock] -= moved
                given[stock] += moved
                return moved
        # 2. From another request that can be served elsewhere: the path's backward edges. Each
        #    request is visited once a search.
        for stock in given:
            for other, theirs in enumerate(self.given):
                if other in self.reached or not theirs.get(stock):
                    continue
                moved = self._augment(other, min(amount, theirs[stock]))
                if moved:
                    theirs[stock] -= moved
                    given[stock] += moved
                    return moved
        return 0
