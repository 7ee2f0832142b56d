"""Times from the arrival of messages until they can be acknowledged, and the number that cannot.

One entry stands for the messages of a batch, so the cost is per batch. Batches of one protocol that
arrive within SHARED_US and have the same commit share an entry, so a commit of many small ones has
few entries.
"""

from collections import Counter, deque
from typing import Final

from penstock.core.answers import is_safe
from penstock.core.histogram import Histogram
from penstock.model import Durability
from penstock.ports import LogWriter, Receipt
from penstock.protocols import Protocol

__all__ = ["ACKNOWLEDGE_BOUNDS_SECONDS", "AcknowledgeTimes"]

ACKNOWLEDGE_BOUNDS_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
SHARED_US: Final = 250
"""Half of the smallest bound: no message is counted more than this too slow."""
_MEMORY: Final = Durability.MEMORY  # a name of the module is found faster than that of an enum


class _Waiting:
    __slots__ = ("arrived_us", "messages", "protocol", "receipt")

    def __init__(
        self, receipt: Receipt, arrived_us: int, messages: int, protocol: Protocol | None
    ) -> None:
        self.receipt = receipt
        self.arrived_us = arrived_us
        self.messages = messages
        self.protocol = protocol


class AcknowledgeTimes:
    """Times of messages whose commit succeeded; those of failed commits count in `refused`.

    Messages with durability `memory` count as acknowledged at once. Times are those of the wall
    clock, which batches have already; if it is set back, a time is 0.
    """

    def __init__(self, refused: Counter[Protocol]) -> None:
        self._refused = refused
        self.histogram = Histogram(ACKNOWLEDGE_BOUNDS_SECONDS)
        # Each kind has its own order: what is written may not be durable yet.
        self._waiting: dict[Durability, deque[_Waiting]] = {
            Durability.OS: deque(),
            Durability.FSYNC: deque(),
        }

    def appended(
        self, receipt: Receipt, arrived_us: int, count: int, protocol: Protocol | None
    ) -> None:
        """Measure `count` messages from their arrival: microseconds since the epoch.

        `protocol` is that of their client; None for Flight and HTTP, which count for themselves.
        """
        if receipt.durability is _MEMORY:
            self.histogram.buckets[0] += count  # as `add` with 0 seconds
            return
        waiting = self._waiting[receipt.durability]
        if waiting:
            last = waiting[-1]
            age = arrived_us - last.arrived_us
            if (
                last.receipt.commit == receipt.commit
                and 0 <= age <= SHARED_US
                and last.protocol is protocol
            ):
                last.messages += count
                return
        waiting.append(_Waiting(receipt, arrived_us, count, protocol))

    def settled(self, log: LogWriter, now_us: int) -> None:
        """Count all messages that became safe, and those that failed."""
        for waiting in self._waiting.values():
            while waiting:
                first = waiting[0]
                if is_safe(first.receipt, log):
                    seconds = max(0, now_us - first.arrived_us) / 1_000_000
                    self.histogram.add(seconds, first.messages)
                elif first.receipt.commit > log.failed_commit:
                    break
                elif first.protocol is not None:
                    self._refused[first.protocol] += first.messages
                waiting.popleft()
