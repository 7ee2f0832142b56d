"""A log that keeps nothing: it numbers messages, and calls them safe at once."""

import secrets

from penstock._kernels.batch import Batch
from penstock.model import Durability
from penstock.ports import Prepared, Receipt, Record

__all__ = ["MemoryLog"]

_GROUP = 1


class MemoryLog:
    """Offsets for a broker whose messages live only as long as it takes to deliver them.

    A `ports.LogWriter` with one group, which is safe.
    """

    written_group = _GROUP
    durable_group = _GROUP
    failed_group = 0
    crowded = False

    def __init__(self, *, log_id: int | None = None, partition: int = 0) -> None:
        self.log_id = secrets.randbits(48) if log_id is None else log_id
        self.partition = partition
        self.next_offset = 0

    def append(self, batch: Batch, sender_name: str) -> Receipt:  # noqa: ARG002
        """Give the rows of `batch` their offsets."""
        return self._number(len(batch))

    def append_record(self, record: Record) -> Receipt:  # noqa: ARG002
        """Give one message its offset."""
        return self._number(1)

    def append_group(self, group: Prepared) -> Receipt:
        """Give rows their offsets."""
        return self._number(len(group))

    def add_topic(self, name: str, creator: bytes) -> Receipt:  # noqa: ARG002
        """Say that it is remembered: as long as the process lives, it is."""
        return self._number(0)

    def _number(self, count: int) -> Receipt:
        first = self.next_offset
        self.next_offset = first + count
        return Receipt(first, _GROUP, Durability.MEMORY)
