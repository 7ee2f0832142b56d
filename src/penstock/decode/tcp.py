"""TCP put together again: one direction of a connection, from segments in any order."""

import heapq
from collections.abc import Iterator
from typing import Final

from penstock.limits import DECODE_REORDER_BYTES_MAX

__all__ = ["Reassembly"]

_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32


class Reassembly:
    """Yields the bytes of a stream once and in order, and the lengths of those that never came."""

    def __init__(self) -> None:
        self._first: int | None = None  # the sequence number of the stream's first byte
        self._position = 0  # the byte of the stream that is due
        self._waiting: list[tuple[int, bytes]] = []  # a heap: position in the stream, bytes
        self._waiting_bytes = 0

    def opened(self, sequence: int) -> None:
        """Learn the number of the SYN, behind which the stream starts."""
        if self._first is None:
            self._first = (sequence + 1) % _WHOLE

    def take(self, sequence: int, data: bytes) -> Iterator[bytes | int]:
        """Take a segment; yield bytes that are now in order, and gaps where too much waits."""
        if not data:
            return
        if self._first is None:
            self._first = sequence
        due = (self._first + self._position) % _WHOLE
        distance = (sequence - due + _HALF) % _WHOLE - _HALF
        heapq.heappush(self._waiting, (self._position + distance, data))
        self._waiting_bytes += len(data)
        yield from self._drain()
        if self._waiting_bytes > DECODE_REORDER_BYTES_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[bytes | int]:
        """Yield what waits for bytes that do not come, with the gaps before it."""
        while self._waiting:
            gap = self._waiting[0][0] - self._position
            if gap > 0:
                yield gap
                self._position += gap
            yield from self._drain()

    def _drain(self) -> Iterator[bytes]:
        """Yield what is due; what was there before, sent again, is dropped."""
        while self._waiting and self._waiting[0][0] <= self._position:
            start, data = heapq.heappop(self._waiting)
            self._waiting_bytes -= len(data)
            fresh = data[self._position - start :]
            if fresh:
                self._position += len(fresh)
                yield fresh
