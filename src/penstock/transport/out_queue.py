"""Bytes that wait to be sent as messages of a message-oriented transport."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["FrameSize", "OutQueue", "Piece"]

Piece: TypeAlias = bytes | memoryview
FrameSize: TypeAlias = Callable[[Callable[[int], bytes]], int]
"""Returns the size of a frame; its argument returns as many of its first bytes as asked."""


class OutQueue:
    """Pieces of bytes, shared with other connections and not copied.

    With `frame_size` a message is one whole frame. Without it, it has up to `bytes_max` bytes.
    """

    def __init__(self, *, bytes_max: int, frame_size: FrameSize | None = None) -> None:
        self._bytes_max = bytes_max
        self._frame_size = frame_size
        self._pieces: deque[Piece] = deque()
        self.bytes = 0
        """Bytes that wait."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def append(self, data: Piece) -> None:
        """Add bytes: whole frames, or a part whose rest follows before the next `take`."""
        self._pieces.append(data)
        self.bytes += len(data)

    def clear(self) -> None:
        """Remove everything."""
        self._pieces.clear()
        self.bytes = 0

    def take(self) -> list[Piece]:
        """Remove the next message and return its pieces."""
        size = self._bytes_max if self._frame_size is None else self._frame_size(self._peek)
        taken: list[Piece] = []
        left = min(size, self.bytes)
        self.bytes -= left
        while left:
            piece = self._pieces.popleft()
            if len(piece) > left:
                whole = memoryview(piece)
                self._pieces.appendleft(whole[left:])
                piece = whole[:left]
            taken.append(piece)
            left -= len(piece)
        return taken

    def _peek(self, size: int) -> bytes:
        found = bytes(self._pieces[0][:size])
        for number in range(1, len(self._pieces)):
            if len(found) >= size:
                break
            found += self._pieces[number][: size - len(found)]
        return found
