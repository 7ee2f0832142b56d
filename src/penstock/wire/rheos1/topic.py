"""The topic of Rheos v1 and its encoding, the body of every request (section 4).

    0             2       2+N              4+N       4+N+M
    ┌─────────────┬───────┬────────────────┬──────────┐
    │ name length │ name  │ payload length │ payload  │
    │ u16, N      │ N     │ u16, M         │ M bytes  │
    └─────────────┴───────┴────────────────┴──────────┘

Integers are little-endian.
"""

import dataclasses
import struct
from typing import Final

from penstock.wire.rheos import U16_MAX, CorruptedTopic, check

__all__ = ["Topic", "decode_topic", "encode_topic"]

_LENGTH: Final = struct.Struct("<H")
_LENGTHS_BYTES: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the client id of its creator as `parent`, its name, its subscribers' client ids."""

    parent: bytes
    name: bytes
    clients: tuple[bytes, ...] = ()


def encode_topic(name: bytes, payload: bytes) -> bytes:
    """Encode the body of a request; raise FieldOutOfRange if either part exceeds 65 535 bytes."""
    check("name length", len(name), U16_MAX)
    check("payload length", len(payload), U16_MAX)
    return b"".join((_LENGTH.pack(len(name)), name, _LENGTH.pack(len(payload)), payload))


def decode_topic(body: bytes | bytearray | memoryview) -> tuple[bytes, bytes]:
    """Decode name and payload; raise CorruptedTopic unless the lengths fill `body` exactly."""
    size = len(body)
    if size < _LENGTHS_BYTES:
        raise CorruptedTopic(f"body of {size} bytes, at least {_LENGTHS_BYTES} are needed")
    (name_length,) = _LENGTH.unpack_from(body)
    name_end = 2 + name_length
    if size < name_end + 2:
        raise CorruptedTopic(f"name of {name_length} bytes in a body of {size}")
    (payload_length,) = _LENGTH.unpack_from(body, name_end)
    payload_start = name_end + 2
    if size != payload_start + payload_length:
        raise CorruptedTopic(
            f"name of {name_length} and payload of {payload_length} bytes in a body of {size}"
        )
    return bytes(body[2:name_end]), bytes(body[payload_start:])
