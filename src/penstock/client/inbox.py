"""Where deliveries go: the subscriptions of a client, and how full they are."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.client.streams import Queue
from penstock.client.topics import TopicMatcher
from penstock.client.values import Delivery, Notification

__all__ = ["Inbox"]

OVERFLOW_FACTOR: Final = 16
"""How far beyond its bound a queue may grow while the client waits for an answer, which may be
behind deliveries. Without it, who publishes from inside a subscription could wait for ever."""
TOPICS_CACHED_MAX: Final = 65_536


class Inbox:
    """The queues of one client; `relieved` is called when there is room again."""

    def __init__(self, relieved: Callable[[], None]) -> None:
        self._relieved = relieved
        self._queues: dict[Queue[Delivery], tuple[str, TopicMatcher]] = {}
        self._notices: set[Queue[Notification]] = set()
        self._by_topic: dict[str, tuple[Queue[Delivery], ...]] = {}
        self._full: set[Queue[Any]] = set()

    # --- Subscriptions ----------------------------------------------------------------------------

    def add(self, pattern: str, queue: Queue[Delivery]) -> None:
        """Let a queue have the deliveries of a pattern."""
        self._queues[queue] = (pattern, TopicMatcher(pattern))
        self._by_topic.clear()

    def add_notices(self, queue: Queue[Notification]) -> None:
        """Let a queue have notifications."""
        self._notices.add(queue)

    def drop(self, queue: Queue[Any]) -> bool:
        """Let a queue have nothing more; return False if it had nothing already."""
        had = self._queues.pop(queue, None) is not None
        if had:
            self._by_topic.clear()
        self._notices.discard(queue)
        self.low(queue)
        return had

    def of(self, pattern: str) -> list[Queue[Delivery]]:
        """Return the queues of this very pattern."""
        return [queue for queue, (known, _) in self._queues.items() if known == pattern]

    def patterns(self) -> Iterator[str]:
        """Give each pattern once."""
        return iter(dict.fromkeys(pattern for pattern, _ in self._queues.values()))

    def end(self, error: Exception | None) -> None:
        """End all queues."""
        for queue in self._queues:
            queue.end(error)
        for notices in self._notices:
            notices.end(error)

    # --- Deliveries -------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Bring a delivery to all queues it is for; without a topic, to all."""
        topic = delivery.topic
        if topic is None:
            queues = tuple(self._queues)
        else:
            found = self._by_topic.get(topic)
            queues = found if found is not None else self._find(topic)
        for queue in queues:
            queue.put(delivery)
            if queue.full:
                self._full.add(queue)

    def notify(self, notification: Notification) -> None:
        """Bring a notification to who wants notifications."""
        for queue in self._notices:
            queue.put(notification)
            if queue.full:
                self._full.add(queue)

    def _find(self, topic: str) -> tuple[Queue[Delivery], ...]:
        if len(self._by_topic) >= TOPICS_CACHED_MAX:
            self._by_topic.clear()
        queues = tuple(queue for queue, (_, matches) in self._queues.items() if matches(topic))
        self._by_topic[topic] = queues
        return queues

    # --- Flow -------------------------------------------------------------------------------------

    def congested(self, *, awaiting: bool) -> bool:
        """Tell whether nothing more should be read; `awaiting` an answer, more is let in."""
        if not self._full:
            return False
        if not awaiting:
            return True
        return any(len(queue) >= queue.items_max * OVERFLOW_FACTOR for queue in self._full)

    def low(self, queue: Queue[Any]) -> None:
        """See Queue: there is room again."""
        if queue in self._full:
            self._full.discard(queue)
            self._relieved()
