"""Quotas: what all clients of a principal together may use.

A principal has one Quota, which gateways, HTTP and Flight ask once for each batch. Messages and
bytes a second are token buckets. The bytes of a batch are known after it was scanned, so a batch
may take more bytes than are left; the next ones wait until the bucket has made up for it. Bytes in
the log are counted by `core.stored_bytes`; at their limit messages are refused until retention has
removed earlier ones. Topics are counted by the table of topics.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.core.rates import RateLimit
from penstock.core.stored_bytes import StoredBytes
from penstock.errors import BrokerFull, TooManyMessages, TooManyStoredBytes, TopicTableFull
from penstock.limits import QUOTA_EVENT_SECONDS

__all__ = ["NO_LIMITS", "QUOTAS", "Quota", "QuotaLimits", "Reached"]

QUOTAS: Final = ("connections", "messages", "bytes", "stored_bytes", "topics")
"""The kinds of limit, as events and metrics name them."""
QUOTA_TOPICS_MAX: Final = "quota.topics_max"
"""`limit` of the TopicTableFull that the table of topics raises at a quota."""

Reached: TypeAlias = Callable[["Quota", str], None]
"""Is told that a quota was reached, and of what: at most once in QUOTA_EVENT_SECONDS."""


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaLimits:
    """The limits of a principal; 0 is no limit.

    With a `topics_max` of 0, the broker's limit for each principal applies. The table of topics
    applies both, and counts the topics of clients without credentials by address.
    """

    connections_max: int = 0
    messages_per_second_max: int = 0
    bytes_per_second_max: int = 0
    stored_bytes_max: int = 0
    topics_max: int = 0


NO_LIMITS: Final = QuotaLimits()


class Quota:
    """The limits of a principal, and how much of them its clients use. One thread owns it."""

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.limits = NO_LIMITS
        self.is_limited = False
        """Whether there is a limit of messages or bytes, also of those in the log."""
        self.connections = 0
        self.reached: Counter[str] = Counter()
        """How often each kind of limit in QUOTAS was reached."""
        self.stored: StoredBytes | None = None
        """Its bytes in the log; None if they are not counted."""
        self._messages: RateLimit | None = None
        self._bytes: RateLimit | None = None
        self._told: dict[str, float] = {}

    def limit_of(self, what: str) -> int:
        """Return the limit of a kind in QUOTAS."""
        return {
            "connections": self.limits.connections_max,
            "messages": self.limits.messages_per_second_max,
            "bytes": self.limits.bytes_per_second_max,
            "stored_bytes": self.limits.stored_bytes_max,
            "topics": self.limits.topics_max,
        }[what]

    def set_limits(self, limits: QuotaLimits, now: float) -> None:
        """Replace the limits; `now` is a monotonic time. Buckets of changed limits are full."""
        before, self.limits = self.limits, limits
        if limits.messages_per_second_max != before.messages_per_second_max:
            self._messages = _bucket(limits.messages_per_second_max, now)
        if limits.bytes_per_second_max != before.bytes_per_second_max:
            self._bytes = _bucket(limits.bytes_per_second_max, now)
        self.is_limited = bool(
            limits.messages_per_second_max or limits.bytes_per_second_max or limits.stored_bytes_max
        )

    # --- Connections

    def connect(self, now: float, tell: Reached) -> None:
        """Count a client; raise BrokerFull at the limit."""
        most = self.limits.connections_max
        if most and self.connections >= most:
            self._note("connections", now, tell)
            raise BrokerFull(most, f"clients of principal {self.principal}")
        self.connections += 1

    def disconnect(self) -> None:
        """Count a client that has left."""
        self.connections -= 1

    # --- Topics

    def topic_refused(self, error: TopicTableFull, now: float, tell: Reached) -> None:
        """Count a new topic that the table of topics has refused, if the limit was this quota."""
        if error.limit == QUOTA_TOPICS_MAX:
            self._note("topics", now, tell)

    # --- Messages

    def available(self, now: float, *, most: int) -> int:
        """Return how many messages may come, up to `most`."""
        if self.is_full:
            return 0
        if self._bytes is not None and self._bytes.available(now, most=1) < 1:
            return 0
        if self._messages is None:
            return most
        return max(self._messages.available(now, most=most), 0)

    def take(self, messages: int, size: int) -> None:
        """Count messages that are about to be appended to the log, and their bytes."""
        if self.stored is not None:
            self.stored.add(messages, size)
        if self._messages is not None:
            self._messages.take(messages)
        if self._bytes is not None:
            self._bytes.take(size)

    @property
    def is_full(self) -> bool:
        """Whether the principal has as many bytes in the log as it may."""
        most = self.limits.stored_bytes_max
        return bool(most) and self.stored is not None and self.stored.size >= most

    def wait_seconds(self) -> float:
        """Return the seconds until one more message may come."""
        buckets = (each for each in (self._messages, self._bytes) if each is not None)
        return max((each.wait_seconds() for each in buckets), default=0.0)

    def exceeded(self, now: float, tell: Reached) -> TooManyMessages | TooManyStoredBytes:
        """Return the error for a message above a limit, and count it."""
        if self.is_full:
            self._note("stored_bytes", now, tell)
            return TooManyStoredBytes(self.limits.stored_bytes_max, self.principal)
        what, most = "messages", self.limits.messages_per_second_max
        if self._bytes is not None and self._bytes.available(now, most=1) < 1:
            what, most = "bytes", self.limits.bytes_per_second_max
        self._note(what, now, tell)
        return TooManyMessages(most, f"{what} of principal {self.principal}")

    def _note(self, what: str, now: float, tell: Reached) -> None:
        self.reached[what] += 1
        told = self._told.get(what)
        if told is None or now - told >= QUOTA_EVENT_SECONDS:
            self._told[what] = now
            tell(self, what)


def _bucket(per_second: int, now: float) -> RateLimit | None:
    return RateLimit(per_second, now) if per_second else None
