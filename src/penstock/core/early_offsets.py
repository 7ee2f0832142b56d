"""Offsets of subscriptions in partitions that are not found yet, such as those of new nodes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.errors import MemoryExhausted, TooManySubscriptions
from penstock.limits import EARLY_OFFSET_BYTES, EARLY_OFFSETS_MAX, EARLY_PATTERN_BYTES
from penstock.memory import Purpose

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["EarlyOffsets"]

_NONE: Final[Mapping[str, Mapping[int, int]]] = MappingProxyType({})


class EarlyOffsets:
    """The offsets by session, pattern and partition. They are held in the session's account."""

    def __init__(self) -> None:
        self.partitions_max = 0
        """Partitions with lower numbers may be found later; 0 if only this process writes."""
        self._sessions: dict[Session, dict[str, dict[int, int]]] = {}
        self._counts: dict[Session, int] = {}

    def check(self, session: "Session", count: int) -> None:
        """Raise TooManySubscriptions or MemoryExhausted if a session has no room for offsets."""
        if self._counts.get(session, 0) + count > EARLY_OFFSETS_MAX:
            unit = "offsets of partitions that are not found"
            raise TooManySubscriptions(EARLY_OFFSETS_MAX, unit)
        if not session.link.account.has_room(count * EARLY_OFFSET_BYTES + EARLY_PATTERN_BYTES):
            raise MemoryExhausted("subscriptions")

    def add(self, session: "Session", pattern: str, offsets: dict[int, int]) -> None:
        """Store the offsets of a new subscription: at least one."""
        self._sessions.setdefault(session, {})[pattern] = offsets
        self._count(session, len(offsets))

    def remove(self, session: "Session", pattern: str) -> None:
        """Remove a subscription, if it is there."""
        patterns = self._sessions.get(session)
        offsets = None if patterns is None else patterns.pop(pattern, None)
        if offsets is not None:
            self._count(session, -len(offsets))

    def forget(self, session: "Session") -> None:
        """Remove a session."""
        if self._sessions.pop(session, None) is not None:
            del self._counts[session]
            session.link.account.hold(Purpose.SUBSCRIPTIONS, 0)

    def of(self, session: "Session") -> Mapping[str, Mapping[int, int]]:
        """Return the offsets of a session by pattern and partition."""
        return self._sessions.get(session, _NONE)

    def take(self, number: int) -> "list[tuple[Session, str, int]]":
        """Remove a partition; return session, pattern and offset of its subscriptions."""
        found = []
        for session, patterns in list(self._sessions.items()):
            for pattern, offsets in list(patterns.items()):
                offset = offsets.pop(number, None)
                if offset is not None:
                    if not offsets:
                        del patterns[pattern]
                    self._count(session, -1)
                    found.append((session, pattern, offset))
        return found

    def _count(self, session: "Session", change: int) -> None:
        patterns = self._sessions[session]
        count = self._counts[session] = self._counts.get(session, 0) + change
        size = count * EARLY_OFFSET_BYTES + len(patterns) * EARLY_PATTERN_BYTES
        session.link.account.force(Purpose.SUBSCRIPTIONS, size)
        if not patterns:
            del self._sessions[session], self._counts[session]
