"""Reads HTTP/2 just far enough to bound gRPC messages, without I/O.

    frame     0        3      4       5         9
              ┌────────┬──────┬───────┬─────────┬─────────┐
              │ length │ type │ flags │ stream  │ payload │    length, stream: network order
              └────────┴──────┴───────┴─────────┴─────────┘
    message   0            1        5
              ┌────────────┬────────┬──────┐
              │ compressed │ length │ data │    in the DATA frames of a stream
              └────────────┴────────┴──────┘

Header blocks are not decoded. gRPC itself parses everything that passes.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.limits import (
    FLIGHT_FIRST_BYTES_MAX,
    FLIGHT_FIRST_STREAMS_MAX,
    FLIGHT_HEADERS_BYTES_MAX,
    FLIGHT_MESSAGE_BYTES_MAX,
    FLIGHT_STREAMS_MAX,
)
from penstock.server.flight.flight_data import FlightDataScan

__all__ = ["FrameCounter", "NotHttp2", "RequestGate", "TooLarge", "failure_frames"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_BYTES: Final = 9
_PREFIX: Final = struct.Struct(">BI")
_DATA: Final = 0
_HEADERS: Final = 1
_RST_STREAM: Final = 3
_GOAWAY: Final = 7
_CONTINUATION: Final = 9
_END_STREAM: Final = 0x01
_END_HEADERS: Final = 0x04
_OTHER_BYTES_MAX: Final = 4096
"""Payload of a frame that is neither DATA nor headers: SETTINGS, PING, WINDOW_UPDATE and others."""


class NotHttp2(Exception):
    """Bytes that no gRPC client sends; the connection is closed without an answer."""


class TooLarge(Exception):
    """A message that is refused; `stream` gets an answer, then the connection is closed."""

    def __init__(self, stream: int, problem: str) -> None:
        super().__init__(problem)
        self.stream = stream
        self.problem = problem


class _Header(NamedTuple):
    length: int
    kind: int
    flags: int
    stream: int


def _header(data: bytes | bytearray) -> _Header:
    return _Header(
        int.from_bytes(data[:3], "big"),
        data[3],
        data[4],
        int.from_bytes(data[5:9], "big") & 0x7FFFFFFF,
    )


class _Stream:
    """The message that a stream is sending."""

    __slots__ = ("left", "prefix", "scan")

    def __init__(self) -> None:
        self.prefix = b""
        self.left = 0
        self.scan: FlightDataScan | None = None


class RequestGate:
    """Checks the bytes of a client. One thread may use it.

    Until `trusted` is set, messages are limited to FLIGHT_FIRST_BYTES_MAX, and a larger one waits:
    its call may be authenticated by its headers. `may_call` is asked before a call begins; one that
    may not waits.
    """

    def __init__(self, may_call: Callable[[], bool] = lambda: True) -> None:
        self.trusted = False
        self._may_call = may_call
        self.greeted = False
        """Whether the client has sent a call."""
        self.unfinished = 0
        """Bytes of messages that have begun and are still to come."""
        self.last_stream = 0
        self._preface = len(PREFACE)
        self._head = bytearray()
        self._frame = _Header(0, 0, 0, 0)
        self._left = 0
        self._block = 0
        self._streams: dict[int, _Stream] = {}

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    def close_stream(self, stream: int) -> None:
        """Forget a stream that the server has ended."""
        found = self._streams.pop(stream, None)
        if found is not None:
            self.unfinished -= found.left

    def feed(self, data: memoryview, room: int) -> int:
        """Return how many bytes may pass; give the others again after `trusted` or `room` changed.

        `room` is the greatest message that may begin now. Raise NotHttp2 or TooLarge.
        """
        place = 0
        size = len(data)
        while place < size:
            if self._preface:
                place += self._skip_preface(data[place:])
            elif not self._left:
                place = self._start_frame(data, place)
                if place < 0:
                    return ~place
            elif self._frame.kind == _DATA and self._frame.stream in self._streams:
                passed, waits = self._data(data[place : place + self._left], room)
                place += passed
                self._left -= passed
                if waits:
                    return place
            else:
                passed = min(self._left, size - place)
                place += passed
                self._left -= passed
        return place

    def _skip_preface(self, data: memoryview) -> int:
        start = len(PREFACE) - self._preface
        count = min(len(data), self._preface)
        if data[:count] != PREFACE[start : start + count]:
            raise NotHttp2("the preface of HTTP/2 is wrong")
        self._preface -= count
        return count

    def _start_frame(self, data: memoryview, place: int) -> int:
        """Read a frame header; return the place behind it, or the inverse of where to wait."""
        count = min(_HEADER_BYTES - len(self._head), len(data) - place)
        head = self._head + data[place : place + count]
        if len(head) < _HEADER_BYTES:
            self._head = head
            return place + count
        frame = _header(head)
        if not self._may_start(frame):
            return ~place
        self._head = bytearray()
        self._frame = frame
        self._left = frame.length
        return place + count

    def _may_start(self, frame: _Header) -> bool:
        """Check a frame header; return False if the frame has to wait."""
        if frame.kind == _DATA:
            if frame.flags & ~_END_STREAM:
                raise NotHttp2("a DATA frame with padding")
            return True
        if frame.kind in {_HEADERS, _CONTINUATION}:
            block = frame.length + (self._block if frame.kind == _CONTINUATION else 0)
            if block > FLIGHT_HEADERS_BYTES_MAX:
                raise NotHttp2(f"more than {FLIGHT_HEADERS_BYTES_MAX} bytes of headers")
            if frame.kind == _HEADERS and frame.stream > self.last_stream:
                streams_max = FLIGHT_STREAMS_MAX if self.trusted else FLIGHT_FIRST_STREAMS_MAX
                if len(self._streams) >= streams_max or not self._may_call():
                    return False
                self._streams[frame.stream] = _Stream()
                self.last_stream = frame.stream
                self.greeted = True
            self._block = block
            return True
        if frame.length > _OTHER_BYTES_MAX:
            raise NotHttp2(f"a frame of kind {frame.kind} with {frame.length} bytes")
        if frame.kind == _RST_STREAM:
            self.close_stream(frame.stream)
        return True

    def _data(self, data: memoryview, room: int) -> tuple[int, bool]:
        """Follow the messages in the data of a stream; return how many bytes pass."""
        stream = self._streams[self._frame.stream]
        place = 0
        while place < len(data):
            if not stream.left:
                count = _PREFIX.size - len(stream.prefix)
                prefix = stream.prefix + bytes(data[place : place + count])
                if len(prefix) == _PREFIX.size and not self._begin(stream, prefix, room):
                    return place, True
                if len(prefix) < _PREFIX.size:
                    stream.prefix = prefix
                place += min(count, len(data) - place)
                continue
            passed = min(stream.left, len(data) - place)
            if stream.scan is not None:
                try:
                    stream.scan.feed(data[place : place + passed])
                except ValueError as error:
                    raise TooLarge(self._frame.stream, str(error)) from None
            stream.left -= passed
            self.unfinished -= passed
            place += passed
        return place, False

    def _begin(self, stream: _Stream, prefix: bytes, room: int) -> bool:
        """Begin a message; return False if it has to wait."""
        compressed, length = _PREFIX.unpack(prefix)
        if compressed:
            raise TooLarge(self._frame.stream, "compressed messages are not accepted")
        if length > FLIGHT_MESSAGE_BYTES_MAX:
            problem = f"a message has {length} bytes, allowed are {FLIGHT_MESSAGE_BYTES_MAX}"
            raise TooLarge(self._frame.stream, problem)
        if length > (room if self.trusted else FLIGHT_FIRST_BYTES_MAX):
            return False
        stream.prefix = b""
        stream.left = length
        stream.scan = FlightDataScan()
        self.unfinished += length
        return True


class FrameCounter:
    """Follows the frames of the server, to know where one ends and which streams are over."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0

    @property
    def between_frames(self) -> bool:
        """Whether the last byte ended a frame."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> list[int]:
        """Follow bytes; return the streams that end."""
        ended = []
        place = 0
        size = len(data)
        while place < size:
            if self._left:
                passed = min(self._left, size - place)
                place += passed
                self._left -= passed
                continue
            count = _HEADER_BYTES - len(self._head)
            self._head += data[place : place + count]
            place = min(place + count, size)
            if len(self._head) == _HEADER_BYTES:
                frame = _header(self._head)
                self._head.clear()
                self._left = frame.length
                ends = frame.kind in {_HEADERS, _DATA} and frame.flags & _END_STREAM
                if ends or frame.kind == _RST_STREAM:
                    ended.append(frame.stream)
        return ended


def failure_frames(stream: int, *, status: int, text: str) -> bytes:
    """Return the frames that end a call with a gRPC status, and then the connection."""
    block = b"\x88" + b"".join(
        _literal(name, value)
        for name, value in (
            (b"content-type", b"application/grpc"),
            (b"grpc-status", b"%d" % status),
            (b"grpc-message", _percent_encoded(text)),
        )
    )
    goaway = stream.to_bytes(4, "big") + (0xB).to_bytes(4, "big")  # ENHANCE_YOUR_CALM
    return b"".join(
        (
            _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, block),
            _frame(_RST_STREAM, 0, stream, bytes(4)),
            _frame(_GOAWAY, 0, 0, goaway),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a header that leaves the tables of HPACK as they are (RFC 7541, section 6.2.2)."""
    return b"\0" + _counted(name) + _counted(value)


def _counted(text: bytes) -> bytes:
    """Return a string with its length, a number with a prefix of 7 bits (sections 5.1 and 5.2)."""
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    out = bytearray((127,))
    length -= 127
    while length >= 128:
        out.append(length % 128 + 128)
        length //= 128
    out.append(length)
    return bytes(out) + text


def _percent_encoded(text: str) -> bytes:
    return b"".join(
        bytes((each,)) if 0x20 <= each <= 0x7E and each != 0x25 else b"%%%02X" % each
        for each in text.encode()[:2000]
    )
