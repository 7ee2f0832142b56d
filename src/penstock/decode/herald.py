"""The layout of herald frames; names are those of the specification."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.decode.layout import Choice, Data, Form, Layout, Number, Window
from penstock.decode.reading import Reading, Side, error_code
from penstock.errors import WireError
from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD_PAYLOAD_BYTES_MAX
from penstock.wire import herald

__all__ = ["FRAME", "MAGIC", "OPCODES", "READING"]

MAGIC: Final = 0xCAFE

OPCODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0x01: "HANDSHAKE_PUB",
        0x02: "HANDSHAKE_SUB",
        0x03: "HANDSHAKE_ACK",
        0x04: "DISCONNECT",
        0x10: "PUBLISH",
        0x11: "SUBSCRIBE",
        0x12: "UNSUBSCRIBE",
        0x13: "MESSAGE",
        0x20: "PING",
        0x21: "PONG",
        0xFF: "ERROR",
    }
)

_ERRORS: Final = MappingProxyType(
    {
        0x01: "INVALID_HANDSHAKE",
        0x02: "CHANNEL_NOT_FOUND",
        0x03: "MESSAGE_TOO_LARGE",
        0x04: "RATE_LIMIT_EXCEEDED",
        0x05: "PROTOCOL_VERSION_MISMATCH",
        0x06: "INVALID_OPCODE",
        0x07: "MALFORMED_MESSAGE",
        0x08: "UNAUTHORIZED",
    }
)

_CLIENT_ID: Final[Layout] = (
    Number("ClientID Len", 1),
    Data("ClientID", "ClientID Len", Form.TEXT),
)
_CHANNEL: Final = Number("Channel", 1)

_BODIES: Final[Mapping[int, Layout]] = MappingProxyType(
    {
        0x01: (_CHANNEL, *_CLIENT_ID),
        0x02: (
            Number("Channel Count", 1),
            Data("Channels", "Channel Count", Form.NUMBERS),
            *_CLIENT_ID,
        ),
        0x03: (
            Number("Status", 1, MappingProxyType({0: "success", **_ERRORS}), closed=True),
            Number("SessionID", 8),
        ),
        0x04: (),
        0x10: (_CHANNEL, Data("Message", None, Form.NAME)),
        0x11: (_CHANNEL,),
        0x12: (_CHANNEL,),
        0x13: (_CHANNEL, Number("Timestamp", 8), Data("Message", None, Form.NAME)),
        0x20: (),
        0x21: (),
        0xFF: (Number("ErrorCode", 1, _ERRORS, closed=True),),
    }
)

FRAME: Final[Layout] = (
    Number("Magic", 2, MappingProxyType({MAGIC: "herald"}), closed=True),
    Number("OpCode", 1, OPCODES, closed=True),
    Number("Length", 4, maximum=HERALD_PAYLOAD_BYTES_MAX),
    Window("Length", (Choice("OpCode", _BODIES, other=(Data("Payload"),)),)),
)


class _Herald(Side):
    def __init__(self, order: ByteOrder) -> None:
        super().__init__(herald.Decoder(order=order), order)
        self.mark = MAGIC.to_bytes(2, order)

    def layout(self, data: bytes) -> tuple[str, Layout]:
        name = OPCODES.get(data[2], "unknown OpCode") if len(data) > 2 else "frame"
        return name, FRAME


_OF_SERVERS: Final = frozenset({0x03, 0x13, 0xFF})  # HANDSHAKE_ACK, MESSAGE, ERROR


def _error_name(error: WireError) -> str:
    return error.answer.name if isinstance(error, herald.HeraldError) else error_code(error)


READING: Final = Reading(
    sides=lambda order, alone: (_Herald(order), _Herald(order)),  # noqa: ARG005
    is_client=lambda data: len(data) < 3 or data[2] not in _OF_SERVERS,
    is_server=lambda data: data[:2] in {b"\xfe\xca", b"\xca\xfe"},
    order=lambda of_client, others: "big" if others[:1] == b"\xca" else "little",  # noqa: ARG005
    error_name=_error_name,
    sides_start_alike=True,
)
