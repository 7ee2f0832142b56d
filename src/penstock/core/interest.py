"""Tells which patterns of topics have subscriptions, so that other messages need not be read.

A storage that keeps the messages of some patterns apart calls `Interest.wants` before it reads
them, in a thread of its own. Subscriptions begin and end in the event loop's thread.
"""

from collections.abc import Collection, Iterator, Mapping

from penstock.core.slices import Slices
from penstock.limits import INTEREST_PATTERNS_MAX, ROUTING_STEPS
from penstock.patterns import overlaps

__all__ = ["Interest"]


class Interest:
    """The subscribed patterns that may match the same topics as each watched pattern.

    `subscribed` has the patterns with subscriptions as keys. The router owns it, and calls `added`
    and `removed` when it changes.
    """

    def __init__(self, slices: Slices, subscribed: Mapping[str, object]) -> None:
        self._slices = slices
        self._subscribed = subscribed
        self._needed: dict[str, set[str]] = {}  # subscribed patterns, by watched pattern
        self._looking: set[str] = set()  # watched patterns that are not compared with all yet

    def wants(self, watched: str) -> bool:
        """Return whether a topic that matches a pattern may have a subscriber.

        Return True for a pattern that is not watched. Any thread may call.
        """
        needed = self._needed.get(watched)
        return needed is None or bool(needed) or watched in self._looking

    def subscribed(self, watched: str) -> Collection[str]:
        """Return the subscribed patterns that may match the same topics as a pattern.

        One that is not watched, or not yet compared with all subscribed ones, is compared now.
        """
        needed = self._needed.get(watched)
        if needed is None or watched in self._looking:
            return {text for text in self._subscribed if overlaps(text, watched)}
        return needed

    def watch(self, pattern: str) -> None:
        """Watch a pattern from now on, unless INTEREST_PATTERNS_MAX are watched already."""
        if pattern in self._needed or len(self._needed) >= INTEREST_PATTERNS_MAX:
            return
        self._looking.add(pattern)
        self._needed[pattern] = set()
        self._slices.start(self._look(pattern, list(self._subscribed)))

    def _look(self, pattern: str, subscribed: list[str]) -> Iterator[None]:
        """Compare a new watched pattern with those that were subscribed before it, in slices."""
        needed = self._needed[pattern]
        for steps, text in enumerate(subscribed, 1):
            if text in self._subscribed and overlaps(text, pattern):
                needed.add(text)
            if not steps % ROUTING_STEPS:
                yield
        self._looking.discard(pattern)

    def added(self, text: str) -> None:
        """Note that a pattern gets its first subscription, before the subscription takes effect."""
        for pattern, needed in self._needed.items():
            if overlaps(text, pattern):
                needed.add(text)

    def removed(self, text: str) -> None:
        """Note that a pattern has lost its last subscription."""
        for needed in self._needed.values():
            needed.discard(text)
