"""Leases of a member of a consumer group, or of all members of a session, in their order."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from penstock.core.groups.ledger import Lease

__all__ = ["LeaseList"]

_IDS: Final = 0x7FFF_FFFF
"""The highest id on the wire; 0 follows it."""
_ENDED_MIN: Final = 64


class LeaseList:
    """Leases in the order of their ids and numbers; about half of them may have ended."""

    __slots__ = ("_leases", "_size_max")

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._size_max = _ENDED_MIN  # above it, leases that have ended are removed

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def add(self, lease: Lease) -> None:
        """Add the lease that was given last."""
        self._leases.append(lease)
        if len(self._leases) > self._size_max:
            self._leases = [each for each in self._leases if each.left]
            self._size_max = 2 * len(self._leases) + _ENDED_MIN

    def trim(self) -> None:
        """Remove the leases before the first one that has not ended."""
        leases = self._leases
        ended = 0
        while ended < len(leases) and not leases[ended].left:
            ended += 1
        del leases[:ended]

    def by_id(self, identifier: int) -> tuple[Lease, int] | None:
        """Return the message with an id on the wire, None if it is not leased."""
        leases = self._leases
        if not leases:
            return None
        start = leases[0].first_id
        place = bisect_right(
            leases, (identifier - start) & _IDS, key=lambda lease: (lease.first_id - start) & _IDS
        )
        lease = leases[place - 1]
        index = (identifier - lease.first_id) & _IDS
        return (lease, index) if index < len(lease) and not lease.is_done(index) else None

    def by_number(self, number: int) -> tuple[Lease, int] | None:
        """Return the message with a number, None if it is not leased."""
        place = bisect_right(self._leases, number, key=lambda lease: lease.first_number)
        if not place:
            return None
        lease = self._leases[place - 1]
        index = number - lease.first_number
        return (lease, index) if index < len(lease) and not lease.is_done(index) else None
