"""Rheos v1 and v2 packets from their specifications: struct and zlib, independent of the codecs.

A `Rheos` encodes the requests of one version, so that cases of both versions are written once.
"""

import dataclasses
import struct
import uuid
import zlib
from typing import Final, NamedTuple

__all__ = [
    "ALICE",
    "BOB",
    "CREATE",
    "FAILED",
    "INVALID_OPERATION",
    "NO_MESSAGE",
    "PUBLISH",
    "RHEOS1",
    "RHEOS2",
    "SUBSCRIBE",
    "SUCCESS",
    "Ack",
    "Delivery",
    "Rheos",
    "log_of",
    "offset_of",
]

CREATE, SUBSCRIBE, PUBLISH, INVALID_OPERATION = range(4)
SUCCESS, FAILED = range(2)

NO_MESSAGE: Final = (1 << 62) - 1
"""The offset in an acknowledgment that is not about a message."""
ALICE: Final = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
BOB: Final = uuid.UUID("6f1c0ab2-d4e5-4a7c-9b3e-8f2054d1a6c8").bytes


class Ack(NamedTuple):
    """An acknowledgment."""

    code: int
    identifier: bytes


class Delivery(NamedTuple):
    """A message as a subscriber gets it; `name` is None in v1, which does not send it."""

    sender: bytes
    name: bytes | None
    payload: bytes


def offset_of(identifier: bytes) -> int:
    """Return the offset in a message id; raise ValueError if it is no UUIDv8."""
    found = uuid.UUID(bytes=identifier)
    if found.version != 8 or found.variant != uuid.RFC_4122:
        raise ValueError(f"{found} is not a UUIDv8")
    return found.int & NO_MESSAGE


def log_of(identifier: bytes) -> bytes:
    """Return the log id in a message id."""
    return identifier[:6]


@dataclasses.dataclass(frozen=True, slots=True)
class Rheos:
    """One version of the protocol."""

    version: int

    @property
    def ack_bytes(self) -> int:
        """The size of an acknowledgment."""
        return 18 if self.version == 1 else 22

    @property
    def body_bytes_max(self) -> int:
        """The size of the largest body."""
        return 4 + 2 * 65_535 if self.version == 1 else 16 * 1024 * 1024

    def body(self, name: bytes, payload: bytes = b"") -> bytes:
        """Return the body of a request."""
        if self.version == 1:
            return struct.pack("<H", len(name)) + name + struct.pack("<H", len(payload)) + payload
        return struct.pack("<HI", len(name), len(payload)) + name + payload

    def packet(self, opcode: int, body: bytes, *, client: bytes = ALICE) -> bytes:
        """Return a packet with any body, right or wrong; its checksum is right."""
        packet = struct.pack("<BI16sB", 0xFA, len(body), client, opcode) + body
        return packet if self.version == 1 else packet + struct.pack("<I", zlib.crc32(packet))

    def request(
        self, opcode: int, name: bytes, payload: bytes = b"", *, client: bytes = ALICE
    ) -> bytes:
        """Return a request."""
        return self.packet(opcode, self.body(name, payload), client=client)

    def delivery(self, sender: bytes, name: bytes, payload: bytes) -> Delivery:
        """Return the delivery of a message."""
        return Delivery(sender, name if self.version == 2 else None, payload)


RHEOS1: Final = Rheos(1)
RHEOS2: Final = Rheos(2)
