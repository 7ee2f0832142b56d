"""Log positions of a session, by the bytes that had been written to its link.

Bytes that were written may still be lost: they wait in buffers here, in the system, or on the way.
A client that reconnects resumes at the last position all of whose bytes its system acknowledged. So
it gets every message at least once.
"""

from collections.abc import Mapping

from penstock.core.partitions import Position, earlier
from penstock.limits import SENT_POSITIONS_MAX

__all__ = ["SentPositions"]


class SentPositions:
    """The positions of one session: those of its subscriptions.

    An entry says: all messages before these positions are in the first `written` bytes. The first
    entry is acknowledged, the others are not.
    """

    __slots__ = ("_entries", "_starts")

    def __init__(self) -> None:
        self._entries: list[tuple[int, Mapping[str, Position]]] = [(0, {})]
        self._starts: dict[str, Position] = {}  # the first position of each subscription

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, positions: Mapping[str, Position], *, written: int, acknowledged: int) -> None:
        """Add an entry; at SENT_POSITIONS_MAX, remove every second one."""
        self._starts = {
            pattern: self._starts.get(pattern, position) for pattern, position in positions.items()
        }
        entries = self._entries
        if len(entries) > 1 and entries[-1][0] == written:
            entries.pop()
        entries.append((written, positions))
        self._acknowledge(acknowledged)
        if len(entries) > SENT_POSITIONS_MAX:
            del entries[1:-1:2]

    def acknowledged(
        self, positions: Mapping[str, Position], *, written: int, acknowledged: int
    ) -> dict[str, Position]:
        """Return where each subscription resumes; `positions` are those after the last byte."""
        if acknowledged >= written:
            return dict(positions)
        self._acknowledge(acknowledged)
        safe = self._entries[0][1]
        return {
            pattern: earlier(position, safe.get(pattern, self._starts.get(pattern, position)))
            for pattern, position in positions.items()
        }

    def _acknowledge(self, size: int) -> None:
        """Remove the entries before the last one that is acknowledged."""
        entries = self._entries
        count = 0
        while count + 1 < len(entries) and entries[count + 1][0] <= size:
            count += 1
        del entries[:count]
