"""The encoder of Rheos v2.

Event: the header that `wire.rheos` draws, then

    22            24            28      28+N    28+N+M     32+N+M
    ┌─────────────┬─────────────┬───────┬───────┬──────────┐
    │ name length │ data length │ name  │ data  │ checksum │
    │ u16, N      │ u32, M      │ N     │ M     │ u32      │
    └─────────────┴─────────────┴───────┴───────┴──────────┘

Acknowledgment:

    0        1        2               18         22
    ┌────────┬────────┬───────────────┬──────────┐
    │ 0xAC   │ code   │ message id    │ checksum │
    │ u8     │ u8     │ 16 bytes      │ u32      │
    └────────┴────────┴───────────────┴──────────┘

Integers are little-endian. The checksum is the CRC32 of zlib over all bytes of the packet before
it; the header's length does not count it.
"""

import struct
from typing import Final
from zlib import crc32

from penstock.wire.rheos import (
    ACK_MAGIC,
    HEADER,
    MAGIC,
    U16_MAX,
    U32_MAX,
    check,
    check_ack_code,
    check_identifier,
    check_opcode,
)
from penstock.wire.rheos2.packets import Acknowledgment, Event, Packet

__all__ = [
    "ACKNOWLEDGMENT",
    "BODY_LENGTHS",
    "BODY_LENGTHS_BYTES",
    "CHECKSUM",
    "CHECKSUM_BYTES",
    "encode",
]

BODY_LENGTHS: Final = struct.Struct("<HI")
BODY_LENGTHS_BYTES: Final = 6
ACKNOWLEDGMENT: Final = struct.Struct("<BB16s")
CHECKSUM: Final = struct.Struct("<I")
CHECKSUM_BYTES: Final = 4


def encode(packet: Packet) -> bytes:
    """Encode a packet; raise FieldOutOfRange if a value does not fit its field."""
    match packet:
        case Event(client_id, opcode, name, data):
            check_identifier("client id", client_id)
            check_opcode(opcode)
            check("name length", len(name), U16_MAX)
            check("data length", len(data), U32_MAX)
            length = BODY_LENGTHS_BYTES + len(name) + len(data)
            check("body length", length, U32_MAX)
            head = HEADER.pack(MAGIC, length, client_id, opcode)
            head += BODY_LENGTHS.pack(len(name), len(data))
            checksum = crc32(data, crc32(name, crc32(head)))
            return b"".join((head, name, data, CHECKSUM.pack(checksum)))
        case Acknowledgment(code, message_id):
            check_ack_code(code)
            check_identifier("message id", message_id)
            head = ACKNOWLEDGMENT.pack(ACK_MAGIC, code, message_id)
            return head + CHECKSUM.pack(crc32(head))
