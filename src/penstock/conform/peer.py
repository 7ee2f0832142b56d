"""A raw connection that knows what must come next, and says what came instead."""

import time
from collections.abc import Iterable
from typing import Final, Self

from penstock.conform.wires import Wire, WireClosed
from penstock.limits import CONFORM_SHOWN_BYTES_MAX, CONFORM_SILENCE_SECONDS

__all__ = ["Failed", "Peer", "Skipped", "spelled"]

ANY: Final = ".."
"""How a byte of any value is spelled."""


class Failed(Exception):
    """The server does not keep the rule."""

    def __init__(self, expected: str, got: str, *, sent: bytes = b"") -> None:
        super().__init__(expected, got)
        self.expected = expected
        self.got = got
        self.sent = sent


class Skipped(Exception):
    """The case cannot be tried against this server."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def spelled(data: bytes) -> str:
    """Return bytes in hex, cut where they are many."""
    if len(data) <= CONFORM_SHOWN_BYTES_MAX:
        return data.hex(" ")
    return f"{data[:CONFORM_SHOWN_BYTES_MAX].hex(' ')} … ({len(data)} bytes)"


class Peer:
    """Sends bytes and expects bytes; every wait ends after `seconds_max`.

    `heard` tells whether the server has sent anything.
    """

    def __init__(self, wire: Wire, *, seconds_max: float) -> None:
        self._wire = wire
        self._seconds_max = seconds_max
        self._unread = b""
        self._sent = b""
        self._answered = True
        self._closed = False
        self.heard = False

    def send(self, data: bytes) -> Self:
        """Send bytes; a server that has closed is told from one that answers when it is asked."""
        self._sent = data if self._answered else self._sent + data
        self._answered = False
        try:
            self._wire.send(data)
        except WireClosed:
            self._closed = True
        return self

    def send_each(self, data: bytes) -> Self:
        """Send bytes one at a time."""
        for byte in data:
            self.send(bytes((byte,)))
        return self

    def expect(self, *parts: bytes | int) -> bytes:
        """Return the next bytes, which must be these; a number stands for so many of any value."""
        size = sum(part if isinstance(part, int) else len(part) for part in parts)
        found = self._receive(size)
        position = 0
        for part in parts:
            if isinstance(part, int):
                position += part
                continue
            there = found[position : position + len(part)]
            if there != part:
                raise self.failed(_pattern(parts), self._got(found, size))
            position += len(part)
        if len(found) < size:
            raise self.failed(_pattern(parts), self._got(found, size))
        return found

    def take(self, size: int, what: str) -> bytes:
        """Return the next `size` bytes, whatever they are: part of `what`."""
        found = self._receive(size)
        if len(found) < size:
            raise self.failed(what, self._got(found, size))
        return found

    def expect_close(self) -> None:
        """Expect that the server closes and says nothing more."""
        found = self._receive(1)
        if found or not self._closed:
            raise self.failed("the end of the connection", self._got(found, 1))

    def expect_silence(self, what: str = "nothing") -> None:
        """Expect that nothing comes for a while and the connection stays open."""
        found = self._receive(1, seconds_max=CONFORM_SILENCE_SECONDS)
        if found or self._closed:
            raise self.failed(what, self._got(found + self._unread, 1))

    def is_closed(self) -> bool:
        """Tell whether the server closes instead of answering; what it answers stays unread."""
        found = self._receive(1)
        self._unread = found + self._unread
        if not found and not self._closed:
            raise self.failed("an answer, or the end of the connection", self._got(b"", 1))
        return not found

    @property
    def closed(self) -> bool:
        """Whether the server was found to have closed."""
        return self._closed

    def close(self) -> None:
        """End the connection."""
        self._wire.close()

    def failed(self, expected: str, got: str) -> Failed:
        """Return the failure of an expectation."""
        return Failed(expected, got, sent=self._sent)

    # --- Bytes ------------------------------------------------------------------------------------

    def _receive(self, size: int, *, seconds_max: float | None = None) -> bytes:
        """Return `size` bytes, or those that came before the end or in time."""
        deadline = time.monotonic() + (self._seconds_max if seconds_max is None else seconds_max)
        self._answered = True
        while len(self._unread) < size and not self._closed:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                self._unread += self._wire.receive(left)
                self.heard = True
            except WireClosed:
                self._closed = True
            except TimeoutError:
                break
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def _got(self, found: bytes, size: int) -> str:
        if len(found) >= size:
            return spelled(found)
        end = "the end" if self._closed else f"nothing more in {self._seconds_max:g} s"
        if not found:
            return "the end of the connection" if self._closed else end.replace(" more", "")
        return f"{spelled(found)}, then {end}"


def _pattern(parts: Iterable[bytes | int]) -> str:
    size = 0
    words = []
    for part in parts:
        if isinstance(part, int):
            words += [ANY] * min(part, CONFORM_SHOWN_BYTES_MAX)
            size += part
        elif part:
            words.append(spelled(part))
            size += len(part)
    return " ".join(words)
