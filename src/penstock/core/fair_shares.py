"""Counts for each of several owners, and the owner with the highest count."""

from collections import OrderedDict

__all__ = ["FairShares"]


class FairShares:
    """A count for each owner. Operations take constant time, however many owners there are."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._owners: dict[int, OrderedDict[str, None]] = {}  # by count
        self._largest = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, owner: str) -> None:
        """Count one more of an owner."""
        count = self._move(owner, 1)
        self._largest = max(self._largest, count)

    def remove(self, owner: str) -> None:
        """Count one less of an owner, whose count must not be 0."""
        count = self._move(owner, -1)
        if count + 1 == self._largest and count + 1 not in self._owners:
            self._largest = count

    def largest(self) -> str:
        """Return an owner with the highest count; there must be one."""
        return next(iter(self._owners[self._largest]))

    def _move(self, owner: str, step: int) -> int:
        before = self._counts.pop(owner, 0)
        if before:
            peers = self._owners[before]
            del peers[owner]
            if not peers:
                del self._owners[before]
        count = before + step
        if count:
            self._counts[owner] = count
            self._owners.setdefault(count, OrderedDict())[owner] = None
        return count
