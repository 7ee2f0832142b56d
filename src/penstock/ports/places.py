"""Places: numbers that name a message by its partition and, in the low 48 bits, its offset.

The states of consumer groups name messages by places. In partition 0, the only one of a log on
disk, a place is the offset itself.
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
