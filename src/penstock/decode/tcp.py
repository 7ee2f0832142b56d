"""TCP reassembly: one direction of a connection, from segments in any order."""

import heapq
from collections.abc import Iterator
from typing import Final

from penstock.limits import DECODE_REORDER_BYTES_MAX

__all__ = ["Reassembly"]

_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32


class Reassembly:
    """Yields the bytes of a stream once and in order, and the lengths of gaps."""

    def __init__(self) -> None:
        self._first: int | None = None  # sequence number of the first byte
        self._position = 0  # position of the next byte to yield
        self._waiting: list[tuple[int, bytes]] = []  # a heap: position in the stream, bytes
        self._waiting_bytes = 0

    def opened(self, sequence: int) -> None:
        """Set the sequence number of the SYN; the stream starts after it."""
        if self._first is None:
            self._first = (sequence + 1) % _WHOLE

    def take(self, sequence: int, data: bytes) -> Iterator[bytes | int]:
        """Add a segment; yield bytes that are in order now, and gaps if too much is buffered."""
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
        """Yield the buffered bytes and the gaps before them."""
        while self._waiting:
            gap = self._waiting[0][0] - self._position
            if gap > 0:
                yield gap
                self._position += gap
            yield from self._drain()

    def _drain(self) -> Iterator[bytes]:
        """Yield bytes that are in order; drop retransmitted ones."""
        while self._waiting and self._waiting[0][0] <= self._position:
            start, data = heapq.heappop(self._waiting)
            self._waiting_bytes -= len(data)
            fresh = data[self._position - start :]
            if fresh:
                self._position += len(fresh)
                yield fresh
