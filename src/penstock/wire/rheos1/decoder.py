"""Decoders of Rheos v1, one per role. `encoder` draws the layouts."""

from penstock.errors import BadMagic
from penstock.protocols.rheos1 import RHEOS1_BODY_BYTES_MAX
from penstock.protocols.rheos2 import RHEOS_BODY_BYTES_MAX
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.rheos import (
    ACK_MAGIC,
    CONTENT_LENGTH,
    CONTENT_LENGTH_END,
    CONTENT_LENGTH_START,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    RheosError,
    TranslationError,
    body_end_at,
    get_ack_code,
    get_opcode,
)
from penstock.wire.rheos1.encoder import ACKNOWLEDGMENT, RESPONSE_HEADER
from penstock.wire.rheos1.packets import (
    ACKNOWLEDGMENT_BYTES,
    RESPONSE_HEADER_BYTES,
    Acknowledgment,
    ClientPacket,
    Request,
    Response,
)
from penstock.wire.rheos1.topic import decode_topic

__all__ = ["BrokerDecoder", "ClientDecoder"]


class BrokerDecoder(decoder.Decoder[Request]):
    """Decodes requests from a client."""

    def __init__(self, *, body_bytes_max: int = RHEOS1_BODY_BYTES_MAX) -> None:
        super().__init__()
        self._body_bytes_max = body_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Request | Rejected, int] | None:
        """See the base class; magic and length are checked as soon as they are complete."""
        if start == len(data):
            return None
        if data[start] != MAGIC:
            raise BadMagic(bytes((data[start],)), (bytes((MAGIC,)),))
        end = body_end_at(data, start, body_bytes_max=self._body_bytes_max)
        if end is None or len(data) < end:
            return None
        try:
            return _request(data, start, end), end
        except RheosError as error:
            return Rejected(error), end


class ClientDecoder(decoder.Decoder[ClientPacket]):
    """Decodes acknowledgments and responses from the broker, by their first byte."""

    def __init__(self, *, body_bytes_max: int = RHEOS_BODY_BYTES_MAX) -> None:
        super().__init__()
        self._body_bytes_max = body_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[ClientPacket | Rejected, int] | None:
        """See the base class; first byte and length are checked as soon as they are complete."""
        if start == len(data):
            return None
        first = data[start]
        if first == RESPONSE_HEADER_BYTES:
            return _response_at(data, start, payload_bytes_max=self._body_bytes_max)
        if first == ACK_MAGIC:
            return _acknowledgment_at(data, start)
        raise BadMagic(bytes((first,)), (bytes((ACK_MAGIC,)), bytes((RESPONSE_HEADER_BYTES,))))


def _request(data: Buffer, start: int, end: int) -> Request:
    """Return the request in [start, end); raise RheosError if opcode or body is not allowed."""
    _, _, client_id, opcode_byte = HEADER.unpack_from(data, start)
    opcode = get_opcode(opcode_byte)
    name, payload = decode_topic(bytes(data[start + HEADER_BYTES : end]))
    return Request(client_id, opcode, name, payload)


def _acknowledgment_at(data: Buffer, start: int) -> tuple[Acknowledgment | Rejected, int] | None:
    end = start + ACKNOWLEDGMENT_BYTES
    if len(data) < end:
        return None
    _, message_id, ack_byte = ACKNOWLEDGMENT.unpack_from(data, start)
    try:
        return Acknowledgment(message_id, get_ack_code(ack_byte)), end
    except RheosError as error:
        return Rejected(error), end


def _response_at(
    data: Buffer, start: int, *, payload_bytes_max: int
) -> tuple[Response, int] | None:
    if len(data) < start + CONTENT_LENGTH_END:
        return None
    (length,) = CONTENT_LENGTH.unpack_from(data, start + CONTENT_LENGTH_START)
    if length > payload_bytes_max:
        raise TranslationError(length, payload_bytes_max)
    payload_start = start + RESPONSE_HEADER_BYTES
    end = payload_start + length
    if len(data) < end:
        return None
    _, _, sender_id = RESPONSE_HEADER.unpack_from(data, start)
    return Response(sender_id, bytes(data[payload_start:end])), end
