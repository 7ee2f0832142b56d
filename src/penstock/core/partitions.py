"""The partitions whose messages a broker delivers: its own, and those of other nodes.

A position is one offset for each partition. It need not have partitions that were not known when it
was taken: they had no messages then.
"""

from collections.abc import Mapping
from typing import TypeAlias

from penstock.ports import LogReader, LogWriter

__all__ = ["OwnPartition", "Partition", "Position", "StoredPartition", "earlier"]

Position: TypeAlias = Mapping[int, int]
"""The next offset of each partition."""


class OwnPartition:
    """The partition that this process writes; messages are delivered when they are appended."""

    def __init__(self, writer: LogWriter, reader: LogReader) -> None:
        self.number = writer.partition
        self.reader = reader
        self._writer = writer
        self.last_commit = 0
        """The commit of the last appended message."""

    @property
    def next_offset(self) -> int:
        """Messages before it were delivered, or were left to the log for slow sessions."""
        return self._writer.next_offset

    def is_settled(self, commit: int) -> bool:
        """Return whether a commit, and all before it, have succeeded or failed."""
        return commit <= self._writer.failed_commit


class StoredPartition:
    """A partition whose messages are delivered when they are in the log.

    It is one that another node writes, or the own one if deliveries wait for commits.
    """

    last_commit = 0

    def __init__(self, number: int, reader: LogReader, next_offset: int) -> None:
        self.number = number
        self.reader = reader
        self.next_offset = next_offset
        """Messages before it were delivered, or were left to the log for slow sessions."""

    def is_settled(self, commit: int) -> bool:  # noqa: ARG002
        """Return True: there is no message that is not in the log."""
        return True


Partition: TypeAlias = OwnPartition | StoredPartition


def earlier(one: Position, other: Position) -> Position:
    """Return the lower offset of each partition; those that only one has are left out."""
    if one is other:
        return one
    return {number: min(offset, other[number]) for number, offset in one.items() if number in other}
