"""A log that keeps nothing: it numbers messages, and calls them safe at once."""

import secrets

from penstock._kernels.batch import Batch

__all__ = ["MemoryLog"]


class MemoryLog:
    """Offsets for a broker whose messages live only as long as it takes to deliver them."""

    def __init__(self, *, log_id: int | None = None, partition: int = 0) -> None:
        self.log_id = secrets.randbits(48) if log_id is None else log_id
        self.partition = partition
        self.durable_offset = 0

    def append(self, batch: Batch) -> int:
        """Give the rows of `batch` their offsets; return the first."""
        first = self.durable_offset
        self.durable_offset = first + len(batch)
        return first

    def append_one(self) -> int:
        """Give one message its offset."""
        self.durable_offset += 1
        return self.durable_offset - 1
