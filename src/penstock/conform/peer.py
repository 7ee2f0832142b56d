"""A raw connection that compares the bytes of the server with the expected ones."""

import time
from collections.abc import Iterable
from typing import Final, Self

from penstock.conform.connections import Connection, ConnectionClosed
from penstock.limits import CONFORM_SHOWN_BYTES_MAX, CONFORM_SILENCE_SECONDS

__all__ = ["Failed", "Peer", "Skipped", "check", "equal", "in_hex"]

ANY_BYTE: Final = ".."


class Failed(Exception):
    """The server breaks the rule; `sent` holds the last bytes sent to it, if they are known."""

    def __init__(self, expected: str, got: str, *, sent: bytes = b"") -> None:
        super().__init__(expected, got)
        self.expected = expected
        self.got = got
        self.sent = sent


class Skipped(Exception):
    """The case cannot run against this server."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def in_hex(data: bytes) -> str:
    """Return bytes in hex, cut off after CONFORM_SHOWN_BYTES_MAX."""
    if len(data) <= CONFORM_SHOWN_BYTES_MAX:
        return data.hex(" ")
    return f"{data[:CONFORM_SHOWN_BYTES_MAX].hex(' ')} … ({len(data)} bytes)"


def check(condition: object, expected: str, got: object) -> None:
    """Raise Failed unless the condition holds."""
    if not condition:
        raise Failed(expected, _shown(got))


def equal(got: object, expected: object, what: str = "") -> None:
    """Raise Failed unless both are equal; `what` names the thing that is compared."""
    if got != expected:
        raise Failed(f"{what} {_shown(expected)}".lstrip(), _shown(got))


class Peer:
    """A connection that sends bytes and expects bytes; every wait ends after `seconds_max`.

    `heard` is true once the server has sent anything; `sent` holds the bytes sent since
    the last expectation, and `sent_at` the time of the last send.
    """

    def __init__(self, connection: Connection, *, seconds_max: float) -> None:
        self._connection = connection
        self._seconds_max = seconds_max
        self._unread = b""
        self._answered = True
        self._closed = False
        self.sent = b""
        self.sent_at = 0.0
        self.heard = False

    def send(self, data: bytes) -> Self:
        """Send bytes. If the server has closed, the next expectation reports it."""
        self.sent = data if self._answered else self.sent + data
        self.sent_at = time.monotonic()
        self._answered = False
        try:
            self._connection.send(data)
        except ConnectionClosed:
            self._closed = True
        return self

    def send_each(self, data: bytes) -> Self:
        """Send bytes one at a time."""
        for byte in data:
            self.send(bytes((byte,)))
        return self

    def half_close(self) -> Self:
        """Close the sending side only; raise Skipped if the transport cannot do that."""
        try:
            self._connection.half_close()
        except ConnectionClosed:
            raise Skipped("the transport cannot close one direction alone") from None
        return self

    def expect(self, *parts: bytes | int) -> bytes:
        """Return the next bytes, which must match; a number matches that many arbitrary bytes."""
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

    def expect_messages(self, *messages: bytes) -> None:
        """Expect these bytes, each in a WebSocket message of its own."""
        for message in messages:
            try:
                found = self._connection.receive(self._seconds_max)
            except (ConnectionClosed, TimeoutError):
                found = b""
            self.heard = self.heard or bool(found)
            if self._unread or found != message:
                raise self.failed(in_hex(message), in_hex(self._unread + found))

    def take(self, size: int, what: str) -> bytes:
        """Return the next `size` bytes of any value; `what` names them in a failure."""
        found = self._receive(size)
        if len(found) < size:
            raise self.failed(what, self._got(found, size))
        return found

    def expect_close(self) -> None:
        """Expect that the server closes and sends nothing more."""
        found = self._receive(1)
        if found or not self._closed:
            raise self.failed("the end of the connection", self._got(found, 1))

    def expect_silence(
        self, what: str = "nothing", *, seconds: float = CONFORM_SILENCE_SECONDS
    ) -> None:
        """Expect that nothing comes for a while and the connection stays open."""
        found = self._receive(1, seconds_max=seconds)
        if found or self._closed:
            raise self.failed(what, self._got(found + self._unread, 1))

    def is_closed(self, *, seconds_max: float | None = None) -> bool:
        """Return whether the server closes instead of answering; an answer stays unread."""
        found = self._receive(1, seconds_max=seconds_max)
        self._unread = found + self._unread
        if not found and not self._closed:
            raise self.failed("an answer, or the end of the connection", self._got(b"", 1))
        return not found

    @property
    def closed(self) -> bool:
        """Whether the server is known to have closed the connection."""
        return self._closed

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def failed(self, expected: str, got: str) -> Failed:
        """Return the failure of an expectation."""
        return Failed(expected, got, sent=self.sent)

    # --- Bytes ------------------------------------------------------------------------------------

    def _receive(self, size: int, *, seconds_max: float | None = None) -> bytes:
        """Return `size` bytes, or those that came before the end or in time."""
        deadline = time.monotonic() + (self._seconds_max if seconds_max is None else seconds_max)
        self._answered = True
        parts, have = [self._unread], len(self._unread)
        while have < size and not self._closed:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                parts.append(self._connection.receive(left))
                have += len(parts[-1])
                self.heard = True
            except ConnectionClosed:
                self._closed = True
            except TimeoutError:
                break
        found = b"".join(parts)
        self._unread = found[size:]
        return found[:size]

    def _got(self, found: bytes, size: int) -> str:
        if len(found) >= size:
            return in_hex(found)
        end = "the end" if self._closed else f"nothing more in {self._seconds_max:g} s"
        if not found:
            return "the end of the connection" if self._closed else end.replace(" more", "")
        return f"{in_hex(found)}, then {end}"


def _shown(value: object) -> str:
    text = in_hex(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= 5 * CONFORM_SHOWN_BYTES_MAX else f"{text[:400]} …"


def _pattern(parts: Iterable[bytes | int]) -> str:
    words = []
    for part in parts:
        if isinstance(part, int):
            words += [ANY_BYTE] * min(part, CONFORM_SHOWN_BYTES_MAX)
        elif part:
            words.append(in_hex(part))
    return " ".join(words)
