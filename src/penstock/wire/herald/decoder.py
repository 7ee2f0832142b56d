"""The decoder of herald streams, and the MessageDecoder of the specification."""

import dataclasses
from typing import Final, Generic, TypeVar

from penstock.errors import BadMagic, WireError
from penstock.model import ByteOrder
from penstock.protocols.herald import HERALD_PAYLOAD_BYTES_MAX
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.herald.encoder import BYTE_AND_U64, HEADER
from penstock.wire.herald.errors import (
    HeraldError,
    InvalidHandshake,
    InvalidOpCode,
    MalformedMessage,
    MessageTooLarge,
)
from penstock.wire.herald.packets import (
    HEADER_BYTES,
    MAGIC,
    Disconnect,
    Error,
    ErrorCode,
    HandshakeAck,
    HandshakePub,
    HandshakeSub,
    Message,
    OpCode,
    Packet,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)

__all__ = ["DecodedMessage", "Decoder", "MessageDecoder", "ParseResult", "decode"]

_OPCODES: Final = frozenset(OpCode)


class Decoder(decoder.Decoder[Packet]):
    """Decodes a herald stream; both roles read the same frames."""

    def __init__(
        self, *, order: ByteOrder = "little", payload_bytes_max: int = HERALD_PAYLOAD_BYTES_MAX
    ) -> None:
        super().__init__()
        self._order: ByteOrder = order
        self._magic = MAGIC.to_bytes(2, order)
        self._header = HEADER[order]
        self._payload_bytes_max = payload_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Packet | Rejected, int] | None:
        """See the base class; magic and length are checked as soon as they are complete."""
        for found in (bytes(data[start : start + 1]), bytes(data[start : start + 2])):
            if not self._magic.startswith(found):
                raise BadMagic(found, (self._magic,))
        if len(data) - start < HEADER_BYTES:
            return None
        _, opcode, length = self._header.unpack_from(data, start)
        if length > self._payload_bytes_max:
            raise MessageTooLarge(length, self._payload_bytes_max)
        body_start = start + HEADER_BYTES
        end = body_start + length
        if len(data) < end:
            return None
        try:
            return _packet(opcode, bytes(data[body_start:end]), self._order), end
        except HeraldError as error:
            return Rejected(error), end


def _packet(opcode: int, body: bytes, order: ByteOrder) -> Packet:
    """Return the packet of one frame; raise HeraldError if the body does not fit the opcode."""
    match opcode:
        case OpCode.PUBLISH:
            if not body:
                raise MalformedMessage("PUBLISH without a channel")
            return Publish(body[0], body[1:])
        case OpCode.MESSAGE:
            if len(body) < 9:
                raise MalformedMessage(f"MESSAGE body of {len(body)} bytes, at least 9 are needed")
            channel, timestamp = BYTE_AND_U64[order].unpack_from(body)
            return Message(channel, timestamp, body[9:])
        case OpCode.HANDSHAKE_PUB:
            if not body:
                raise InvalidHandshake("HANDSHAKE_PUB without a channel")
            return HandshakePub(body[0], _client_id(body[1:]))
        case OpCode.HANDSHAKE_SUB:
            if not body or len(body) < 1 + body[0]:
                raise InvalidHandshake("HANDSHAKE_SUB ends inside its channels")
            return HandshakeSub(body[1 : 1 + body[0]], _client_id(body[1 + body[0] :]))
        case OpCode.HANDSHAKE_ACK:
            _exactly(9, body, "HANDSHAKE_ACK")
            status, session_id = BYTE_AND_U64[order].unpack(body)
            return HandshakeAck(session_id, _error_code(status) if status else None)
        case OpCode.SUBSCRIBE:
            _exactly(1, body, "SUBSCRIBE")
            return Subscribe(body[0])
        case OpCode.UNSUBSCRIBE:
            _exactly(1, body, "UNSUBSCRIBE")
            return Unsubscribe(body[0])
        case OpCode.ERROR:
            _exactly(1, body, "ERROR")
            return Error(_error_code(body[0]))
        case OpCode.DISCONNECT:
            _exactly(0, body, "DISCONNECT")
            return Disconnect()
        case OpCode.PING:
            _exactly(0, body, "PING")
            return Ping()
        case OpCode.PONG:
            _exactly(0, body, "PONG")
            return Pong()
        case _:
            raise InvalidOpCode(opcode)


def _client_id(field: bytes) -> str:
    if not field or len(field) != 1 + field[0]:
        raise InvalidHandshake("the client id's length does not match the frame's")
    try:
        return field[1:].decode()
    except UnicodeDecodeError:
        raise InvalidHandshake("the client id is not UTF-8") from None


def _exactly(size: int, body: bytes, name: str) -> None:
    if len(body) != size:
        raise MalformedMessage(f"{name} body of {len(body)} bytes, expected {size}")


def _error_code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        raise MalformedMessage(f"unknown error code {value}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedMessage:
    """A whole frame. `payload_view` points into the buffer that was decoded, and is not owned."""

    opcode: OpCode
    payload_view: memoryview

    def packet(self, *, order: ByteOrder = "little") -> Packet:
        """Return the packet; raise HeraldError if the payload does not fit the opcode."""
        return _packet(self.opcode, bytes(self.payload_view), order)


MessageT_co = TypeVar("MessageT_co", bound=Packet | DecodedMessage, covariant=True)


@dataclasses.dataclass(frozen=True, slots=True)
class ParseResult(Generic[MessageT_co]):
    """Result of a decoding step, as in the specification.

    With neither `need_more_data` nor `message` the frame is invalid, and `error` is the reason.
    `bytes_consumed` is then 0 if framing is lost and the connection must close.
    """

    need_more_data: bool = False
    bytes_consumed: int = 0
    message: MessageT_co | None = None
    error: WireError | None = None


class MessageDecoder:
    """The specification's MessageDecoder: decodes frames without a copy of their payload.

    Unlike Decoder, it judges nothing before a header is complete ("Partial Frame Handling").
    """

    def __init__(
        self, *, order: ByteOrder = "little", payload_bytes_max: int = HERALD_PAYLOAD_BYTES_MAX
    ) -> None:
        self._magic = MAGIC.to_bytes(2, order)
        self._header = HEADER[order]
        self._payload_bytes_max = payload_bytes_max

    def decode(self, data: Buffer) -> ParseResult[DecodedMessage]:
        """Decode the frame at the start of `data`; an unknown opcode is an error."""
        if len(data) < HEADER_BYTES:
            return ParseResult(need_more_data=True)
        if data[:2] != self._magic:
            return ParseResult(error=BadMagic(bytes(data[:2]), (self._magic,)))
        _, opcode, length = self._header.unpack_from(data)
        if length > self._payload_bytes_max:
            return ParseResult(error=MessageTooLarge(length, self._payload_bytes_max))
        end = HEADER_BYTES + length
        if len(data) < end:
            return ParseResult(need_more_data=True)
        if opcode not in _OPCODES:
            return ParseResult(bytes_consumed=end, error=InvalidOpCode(opcode))
        payload_view = memoryview(data)[HEADER_BYTES:end]
        return ParseResult(bytes_consumed=end, message=DecodedMessage(OpCode(opcode), payload_view))


def decode(data: Buffer, *, order: ByteOrder = "little") -> ParseResult[Packet]:
    """Decode the packet at the start of `data`; see MessageDecoder."""
    result = MessageDecoder(order=order).decode(data)
    message, end = result.message, result.bytes_consumed
    if message is None:
        return ParseResult(result.need_more_data, end, None, result.error)
    try:
        return ParseResult(bytes_consumed=end, message=message.packet(order=order))
    except HeraldError as error:
        return ParseResult(bytes_consumed=end, error=error)
