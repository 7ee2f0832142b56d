"""Damages Arrow IPC streams by their structure. The same number gives the same input everywhere."""

import random
import struct
from collections.abc import Callable, Sequence

NUMBERS = (
    0, 1, 2, 7, 8, 63, 64, 127, 128, 255, 256, 4095, 4096, 65_535, 65_536, 1 << 20, 1 << 24,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
)  # fmt: skip
TEXTS = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\x00")
_PREFIX = struct.Struct("<Ii")

Message = tuple[bytearray, bytearray]
"""Metadata and body."""


def messages(stream: bytes) -> list[Message]:
    """Cut an intact IPC stream into its messages; what follows the last one is left out."""
    found: list[Message] = []
    place = 0
    while len(stream) - place >= _PREFIX.size:
        _, length = _PREFIX.unpack_from(stream, place)
        if length <= 0:
            break
        metadata = stream[place + 8 : place + 8 + length]
        size = _body_length(metadata)
        found.append((bytearray(metadata), bytearray(stream[place + 8 + length :][:size])))
        place += 8 + length + size
    return found


def _body_length(metadata: bytes) -> int:
    (root,) = struct.unpack_from("<I", metadata)
    vtable = root - struct.unpack_from("<i", metadata, root)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    field = struct.unpack_from("<H", metadata, vtable + 10)[0] if size > 10 else 0
    return int(struct.unpack_from("<q", metadata, root + field)[0]) if field else 0


def joined(parts: Sequence[Message], *, end: bool = True) -> bytes:
    """Join messages to a stream."""
    out = b"".join(
        _PREFIX.pack(0xFFFFFFFF, len(metadata)) + metadata + body for metadata, body in parts
    )
    return out + b"\xff\xff\xff\xff\0\0\0\0" if end else out


def damaged(stream: bytes, choose: random.Random) -> bytes:
    """Return a stream after one to four changes."""
    parts = messages(stream)
    for _ in range(choose.choice((1, 1, 1, 2, 3, 4))):
        choose.choice(CHANGES)(parts, choose)
    out = joined(parts, end=choose.random() < 0.95)
    if choose.random() < 0.05:
        out = out[: choose.randrange(len(out) + 1)]
    if choose.random() < 0.05:
        out = set_number(bytearray(out), choose)
    return bytes(out)


def set_number(data: bytearray, choose: random.Random) -> bytearray:
    """Set an aligned number of 1 to 8 bytes, or move it a little."""
    size = choose.choice((1, 2, 4, 4, 4, 8, 8))
    if len(data) >= size:
        start = choose.randrange(len(data) // size) * size
        old = int.from_bytes(data[start : start + size], "little")
        number = choose.choice(
            (
                choose.choice(NUMBERS),
                old + choose.choice((-8, -1, 1, 8)),
                old ^ 1 << choose.randrange(8 * size),
                choose.getrandbits(8 * size),
                -choose.choice(NUMBERS),
            )
        )
        data[start : start + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    return data


def _body(parts: list[Message], choose: random.Random) -> None:
    filled = [body for _, body in parts if body]
    if filled:
        set_number(choose.choice(filled), choose)


def _metadata(parts: list[Message], choose: random.Random) -> None:
    if parts:
        set_number(choose.choice(parts)[0], choose)


def _text(parts: list[Message], choose: random.Random) -> None:
    filled = [body for _, body in parts if body]
    if filled:
        body = choose.choice(filled)
        text = choose.choice(TEXTS)
        start = choose.randrange(len(body))
        body[start : start + len(text)] = text[: len(body) - start]


def _cut_body(parts: list[Message], choose: random.Random) -> None:
    if parts:
        body = choose.choice(parts)[1]
        del body[choose.randrange(len(body) + 1) // 8 * 8 :]


def _drop(parts: list[Message], choose: random.Random) -> None:
    if parts:
        del parts[choose.randrange(len(parts))]


def _repeat(parts: list[Message], choose: random.Random) -> None:
    if parts:
        metadata, body = choose.choice(parts)
        parts.insert(choose.randrange(len(parts) + 1), (bytearray(metadata), bytearray(body)))


def _swap(parts: list[Message], choose: random.Random) -> None:
    if len(parts) > 1:
        first, second = choose.sample(range(len(parts)), 2)
        parts[first], parts[second] = parts[second], parts[first]


def _mix(parts: list[Message], choose: random.Random) -> None:
    """Give one message the body of another."""
    if len(parts) > 1:
        first, second = choose.sample(range(len(parts)), 2)
        parts[first] = parts[first][0], bytearray(parts[second][1])


Change = Callable[[list[Message], random.Random], None]
CHANGES: Sequence[Change] = (
    *(_body,) * 6,
    *(_metadata,) * 6,
    *(_text,) * 2,
    _cut_body,
    _drop,
    _repeat,
    _swap,
    _mix,
)
