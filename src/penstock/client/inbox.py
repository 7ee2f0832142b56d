"""The queues of a client's subscriptions, and their back-pressure."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.client.streams import Queue
from penstock.client.subscription import Subscription
from penstock.client.values import Delivery, Notification
from penstock.positions import Anchor, Place

__all__ = ["Inbox"]

OVERFLOW_FACTOR: Final = 16
"""A queue may grow to this multiple of its limit while the client waits for an answer, because
deliveries may precede the answer. Otherwise a caller that publishes while it iterates over a
subscription could deadlock."""
TOPICS_CACHED_MAX: Final = 65_536


class Inbox:
    """The queues of one client; `resume_reading` is called when a full queue has room again."""

    def __init__(self, resume_reading: Callable[[], None]) -> None:
        self._resume_reading = resume_reading
        self._queues: dict[Queue[Delivery], Subscription] = {}
        self._notices: set[Queue[Notification]] = set()
        self._by_topic: dict[str, tuple[tuple[Queue[Delivery], Subscription], ...]] = {}
        self._says_positions = False  # whether the broker of this connection does
        self.has_history = False
        """Whether it can deliver earlier messages, if it says positions."""
        self._leaving: set[str] = set()  # names that are being unsubscribed
        self._full: set[Queue[Any]] = set()

    # --- Subscriptions ----------------------------------------------------------------------------

    def add(self, pattern: str, queue: Queue[Delivery], *, resumes: bool = True) -> None:
        """Deliver the messages of a pattern to a queue; see Subscription for `resumes`."""
        self._queues[queue] = Subscription(pattern, resumes=resumes)
        self._by_topic.clear()

    def add_notices(self, queue: Queue[Notification]) -> None:
        """Deliver notifications to a queue."""
        self._notices.add(queue)

    def drop(self, queue: Queue[Any]) -> bool:
        """Remove a queue; return whether it was subscribed to a pattern."""
        had = self._queues.pop(queue, None) is not None
        if had:
            self._by_topic.clear()
        self._notices.discard(queue)
        self.low(queue)
        return had

    def restored_by(self, text: str) -> list[Queue[Delivery]]:
        """Return the queues that share one subscription at the broker: a name or group pattern."""
        return [queue for queue, known in self._queues.items() if known.restored_by == text]

    def subscriptions(self) -> Iterator[list[Subscription]]:
        """Iterate over lists of subscriptions that share one subscription at the broker."""
        same: dict[str, list[Subscription]] = {}
        for subscription in self._queues.values():
            same.setdefault(subscription.restored_by, []).append(subscription)
        return iter(same.values())

    @contextlib.contextmanager
    def leaving(self, name: str) -> Iterator[None]:
        """Mark a name as being unsubscribed within the `with` block."""
        self._leaving.add(name)
        try:
            yield
        finally:
            self._leaving.discard(name)

    def is_in_effect(self, name: str) -> bool:
        """Return whether the broker has confirmed all subscriptions with this name."""
        same = [each for each in self._queues.values() if each.name == name]
        is_leaving = name in self._leaving or not same
        return self._says_positions and not is_leaving and all(each.is_open for each in same)

    def quiet_names(self) -> list[str]:
        """Return the names of confirmed subscriptions that were quiet since the last call."""
        quiet = [each.name for each in self._queues.values() if each.was_quiet()]
        return [name for name in dict.fromkeys(quiet) if self.is_in_effect(name)]

    def connecting(self) -> None:
        """Take note of a new connection: subscriptions wait until they are in effect there."""
        self._says_positions = False
        for subscription in self._queues.values():
            subscription.connecting()

    def anchored(self, anchor: Anchor) -> list[tuple[str, str]]:
        """Open the subscriptions of an anchor's pattern.

        Return the pattern and the reason for each that may have missed messages.
        """
        self._says_positions = True
        self.has_history = anchor.has_history
        missed = []
        for subscription in self._queues.values():
            if subscription.name == anchor.pattern:
                reason = subscription.opened(anchor)
                if reason is not None:
                    missed.append((subscription.pattern, reason))
        return missed

    def end(self, error: Exception | None) -> None:
        """End all queues."""
        for queue in self._queues:
            queue.end(error)
        for notices in self._notices:
            notices.end(error)

    # --- Deliveries -------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Put a delivery into all matching queues; into all queues if it has no topic."""
        topic = delivery.topic
        if topic is None:
            queues = tuple(self._queues.items())
        else:
            found = self._by_topic.get(topic)
            queues = found if found is not None else self._find(topic)
        place = delivery.place
        for queue, subscription in queues:
            if not self._is_wanted(subscription, place):
                continue
            queue.put(delivery)
            if queue.full:
                self._full.add(queue)

    def notify(self, notification: Notification) -> None:
        """Put a notification into all queues for notifications."""
        for queue in self._notices:
            queue.put(notification)
            if queue.full:
                self._full.add(queue)

    def _is_wanted(self, subscription: Subscription, place: Place | None) -> bool:
        is_open = subscription.is_open or not self._says_positions
        return is_open and subscription.takes(place)

    def _find(self, topic: str) -> tuple[tuple[Queue[Delivery], Subscription], ...]:
        if len(self._by_topic) >= TOPICS_CACHED_MAX:
            self._by_topic.clear()
        queues = tuple(each for each in self._queues.items() if each[1].covers(topic))
        self._by_topic[topic] = queues
        return queues

    # --- Flow -------------------------------------------------------------------------------------

    def congested(self, *, awaiting: bool) -> bool:
        """Return whether reading must pause; the limit is higher while `awaiting` an answer."""
        if not self._full:
            return False
        if not awaiting:
            return True
        return any(len(queue) >= queue.items_max * OVERFLOW_FACTOR for queue in self._full)

    def low(self, queue: Queue[Any]) -> None:
        """See Queue; resume reading if the queue was full."""
        if queue in self._full:
            self._full.discard(queue)
            self._resume_reading()
