"""The encoder of Rheos v1.

Request (section 1): the header that `wire.rheos` draws, then the body that `topic` draws.

Acknowledgment (section 2):

    0        1               17       18
    ┌────────┬───────────────┬────────┐
    │ 0xAC   │ message id    │ code   │
    │ u8     │ 16 bytes      │ u8     │
    └────────┴───────────────┴────────┘

Response (section 3):

    0        1            5               21
    ┌────────┬────────────┬───────────────┬───────────────┐
    │ 21     │ length     │ sender id     │ payload       │
    │ u8     │ u32        │ 16 bytes      │ length bytes  │
    └────────┴────────────┴───────────────┴───────────────┘

Integers are little-endian.
"""

import struct
from typing import Final

from penstock.wire.rheos import (
    ACK_MAGIC,
    HEADER,
    MAGIC,
    U32_MAX,
    check,
    check_ack_code,
    check_identifier,
    check_opcode,
)
from penstock.wire.rheos1.packets import (
    RESPONSE_HEADER_BYTES,
    Acknowledgment,
    Packet,
    Request,
    Response,
)
from penstock.wire.rheos1.topic import encode_topic

__all__ = ["ACKNOWLEDGMENT", "RESPONSE_HEADER", "encode"]

ACKNOWLEDGMENT: Final = struct.Struct("<B16sB")
RESPONSE_HEADER: Final = struct.Struct("<BI16s")


def encode(packet: Packet) -> bytes:
    """Encode a packet; raise FieldOutOfRange if a value does not fit its field."""
    match packet:
        case Request(client_id, opcode, name, payload):
            check_identifier("client id", client_id)
            check_opcode(opcode)
            body = encode_topic(name, payload)
            return HEADER.pack(MAGIC, len(body), client_id, opcode) + body
        case Acknowledgment(message_id, code):
            check_identifier("message id", message_id)
            check_ack_code(code)
            return ACKNOWLEDGMENT.pack(ACK_MAGIC, message_id, code)
        case Response(sender_id, payload):
            check_identifier("sender id", sender_id)
            check("payload length", len(payload), U32_MAX)
            return RESPONSE_HEADER.pack(RESPONSE_HEADER_BYTES, len(payload), sender_id) + payload
