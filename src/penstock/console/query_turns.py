"""The limit of queries that run at a time."""

import contextlib
from collections.abc import Iterator

from penstock.console.limits import SQL_QUERIES_MAX

__all__ = ["QueryRefused", "QueryTurns"]


class QueryRefused(Exception):
    """A query was not run, or failed."""


class QueryTurns:
    """Limits queries: one at a time for each principal, and a few in all."""

    def __init__(self, *, queries_max: int = SQL_QUERIES_MAX) -> None:
        self._queries_max = queries_max
        self._running: set[str] = set()

    @contextlib.contextmanager
    def take(self, principal: str) -> Iterator[None]:
        """Count a query as running within the `with` block; raise QueryRefused at a limit."""
        if principal in self._running:
            raise QueryRefused("another query of yours is running; wait until it ends")
        if len(self._running) >= self._queries_max:
            raise QueryRefused("too many queries of other principals are running; try again soon")
        self._running.add(principal)
        try:
            yield
        finally:
            self._running.discard(principal)
