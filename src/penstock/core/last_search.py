"""Finds the last messages for the subscriptions of each session, one subscription at a time.

Messages that another subscription of the session sends are left out.
"""

from collections.abc import Callable, Sequence

import structlog

from penstock.core.counters import Counters
from penstock.core.feeds import Feed
from penstock.core.history import log_fields
from penstock.core.last_values import LastRows, LastValues, Sent
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.limits import LAST_MEANING_TEXTS

__all__ = ["LastSearch"]

log = structlog.get_logger("penstock.catch_up")


class LastSearch:
    """Searches the last messages for all feeds; for each, one subscription at a time."""

    def __init__(self, last_values: LastValues, router: Router, counters: Counters) -> None:
        self._last_values = last_values
        self._router = router
        self._counters = counters

    def start(self, session: Session, feed: Feed, *, then: Callable[[Session], None]) -> None:
        """Find the offsets of all subscriptions of a feed that wait for them, one after the other.

        `then` is called after each of them.
        """
        rows = feed.lasts.next_to_collect()
        if rows is None:
            return

        def found(dropped: int) -> None:
            feed.lasts.collected(rows)
            if dropped:
                self._counters.messages_dropped[session.encoding.protocol] += dropped
                log.warning("last messages dropped", **log_fields(session), messages=dropped)
            self.start(session, feed, then=then)
            then(session)

        below = feed.cursor_of(rows.pattern).position
        sent = self._sent_by_others(session, feed, rows, below)
        self._last_values.collect(rows, below=below, sent=sent, then=found)

    def _sent_by_others(
        self, session: Session, feed: Feed, rows: LastRows, below: int
    ) -> Sent | None:
        """Return a test for messages that other subscriptions of a feed send, or have sent.

        The positions of the feed stay as they are while it has last messages to send.
        """
        if feed.position >= below and not rows.head:
            return None
        lowest: dict[str, int] = {}  # of many subscriptions with one meaning, by the first of them

        def position_of(texts: Sequence[str]) -> int:
            return min(
                (
                    feed.lasts.position_before(rows, text, feed.cursor_of(text).position)
                    for text in texts
                    if text != rows.pattern
                ),
                default=below,
            )

        def sent(name: str, offset: int) -> bool:
            for texts in self._router.texts_of(session, name):
                position = lowest.get(texts[0])
                if position is None:
                    position = position_of(texts)
                    if len(texts) > LAST_MEANING_TEXTS:
                        lowest[texts[0]] = position
                if offset >= position:
                    return True
            return False

        return sent
