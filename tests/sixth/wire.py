"""The codec of Lines, and how its connections are recognised."""

import dataclasses
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from penstock.errors import ErrorCode, FrameTooLarge, WireError
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.detection import Detected, Detection, by_magic
from tests.sixth.protocol import LINES

__all__ = ["DETECTION", "BadLine", "Decoder", "Line", "encode"]

WORDS: Final = {"hello": 1, "pub": 2, "sub": 1, "unsub": 1, "ping": 0, "pong": 0, "ok": 0, "msg": 3,
                "err": 1}  # fmt: skip
"""How many words follow the first of a line."""
WITH_VALUE: Final = frozenset({"pub", "msg"})


class BadLine(WireError):
    """A line whose words are not those of any message."""

    code = ErrorCode.BAD_MAGIC
    template = "no message of Lines: {line!r}"

    line: str


@dataclasses.dataclass(frozen=True)
class Line:
    """A message: its first word, those behind it but for the size, and where its value lies."""

    word: str
    rest: tuple[bytes, ...] = ()
    value: bytes = b""
    value_start: int = 0


def encode(word: str, *rest: bytes, value: bytes | None = None) -> bytes:
    """Return a line, and its value."""
    words = [word, *(quote_from_bytes(each, safe="/") for each in rest)]
    if value is None:
        return " ".join(words).encode() + b"\n"
    return " ".join((*words, str(len(value)))).encode() + b"\n" + value + b"\n"


class Decoder(decoder.Decoder[Line]):
    """Cuts a stream into lines; both roles read the same."""

    def __init__(self, *, line_bytes_max: int = 65_536) -> None:
        super().__init__()
        self._line_bytes_max = line_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Line | Rejected, int] | None:
        """See the base class."""
        searched = bytes(data[start : start + self._line_bytes_max + 1])
        size = searched.find(b"\n")
        if size < 0:
            if len(searched) > self._line_bytes_max:
                raise FrameTooLarge("a line", len(searched), self._line_bytes_max)
            return None
        word, *rest = searched[:size].decode("ascii", "replace").split(" ")
        end = start + size + 1
        if WORDS.get(word) != len(rest) or (word in WITH_VALUE and not rest[-1].isdecimal()):
            return Rejected(BadLine(word)), end
        if word not in WITH_VALUE:
            return Line(word, tuple(map(unquote_to_bytes, rest))), end
        length = int(rest.pop())
        if length > self._line_bytes_max:
            raise FrameTooLarge("a value", length, self._line_bytes_max)
        if len(data) < end + length + 1:
            return None
        value = bytes(data[end : end + length])
        return Line(word, tuple(map(unquote_to_bytes, rest)), value, end), end + length + 1


def _recognise(data: Buffer) -> Detected | None:
    return by_magic(data, b"hello ", Detected(LINES, "big"))


DETECTION: Final = Detection(b"h", _recognise)
