"""Messages of all partitions in one row of numbers: the partition, then 48 bits of the offset.

The states of consumer groups name messages by such places. Those of partition 0, the only one of a
log on disk, are the offsets.
"""

from typing import Final

__all__ = ["offset_of", "partition_of", "place_of"]

_OFFSET_BITS: Final = 48


def place_of(partition: int, offset: int) -> int:
    """Return the place of a message."""
    return (partition << _OFFSET_BITS) + offset


def partition_of(place: int) -> int:
    """Return the partition of a place."""
    return place >> _OFFSET_BITS


def offset_of(place: int) -> int:
    """Return the offset of a place in its partition."""
    return place & ((1 << _OFFSET_BITS) - 1)
