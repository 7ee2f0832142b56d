"""Decoders of Rheos v2, one per role. `encoder` draws the layouts.

The checksum is verified before any field except magic and length is checked. A mismatch loses
framing, because the length of the packet cannot be trusted.
"""

from zlib import crc32

from penstock.errors import BadMagic
from penstock.protocols.rheos2 import RHEOS_BODY_BYTES_MAX
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.rheos import (
    ACK_MAGIC,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    CorruptedData,
    RheosError,
    body_end_at,
    get_ack_code,
    get_opcode,
)
from penstock.wire.rheos2.encoder import (
    ACKNOWLEDGMENT,
    BODY_LENGTHS,
    BODY_LENGTHS_BYTES,
    CHECKSUM,
    CHECKSUM_BYTES,
)
from penstock.wire.rheos2.packets import ACKNOWLEDGMENT_BYTES, Acknowledgment, Event, Packet

__all__ = ["BrokerDecoder", "ClientDecoder"]


class BrokerDecoder(decoder.Decoder[Event]):
    """Decodes events from a client."""

    def __init__(self, *, body_bytes_max: int = RHEOS_BODY_BYTES_MAX) -> None:
        super().__init__()
        self._body_bytes_max = body_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Event | Rejected, int] | None:
        """See the base class; magic and length are checked as soon as they are complete."""
        if start == len(data):
            return None
        if data[start] != MAGIC:
            raise BadMagic(bytes((data[start],)), (bytes((MAGIC,)),))
        return _event_at(data, start, body_bytes_max=self._body_bytes_max)


class ClientDecoder(decoder.Decoder[Packet]):
    """Decodes events and acknowledgments from the broker, by their first byte."""

    def __init__(self, *, body_bytes_max: int = RHEOS_BODY_BYTES_MAX) -> None:
        super().__init__()
        self._body_bytes_max = body_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Packet | Rejected, int] | None:
        """See the base class; magic and length are checked as soon as they are complete."""
        if start == len(data):
            return None
        first = data[start]
        if first == MAGIC:
            return _event_at(data, start, body_bytes_max=self._body_bytes_max)
        if first == ACK_MAGIC:
            return _acknowledgment_at(data, start)
        raise BadMagic(bytes((first,)), (bytes((MAGIC,)), bytes((ACK_MAGIC,))))


def _event_at(
    data: Buffer, start: int, *, body_bytes_max: int
) -> tuple[Event | Rejected, int] | None:
    body_end = body_end_at(data, start, body_bytes_max=body_bytes_max)
    if body_end is None or len(data) < body_end + CHECKSUM_BYTES:
        return None
    end = body_end + CHECKSUM_BYTES
    packet = bytes(data[start:body_end])
    _verify(packet, *CHECKSUM.unpack_from(data, body_end))
    try:
        return _event(packet), end
    except RheosError as error:
        return Rejected(error), end


def _event(packet: bytes) -> Event:
    """Return the event of header and body; raise RheosError if opcode or body is not allowed."""
    _, length, client_id, opcode_byte = HEADER.unpack_from(packet)
    opcode = get_opcode(opcode_byte)
    if length < BODY_LENGTHS_BYTES:
        raise CorruptedData(f"body of {length} bytes, at least {BODY_LENGTHS_BYTES} are needed")
    name_length, data_length = BODY_LENGTHS.unpack_from(packet, HEADER_BYTES)
    if length != BODY_LENGTHS_BYTES + name_length + data_length:
        raise CorruptedData(
            f"name of {name_length} and data of {data_length} bytes in a body of {length}"
        )
    name_start = HEADER_BYTES + BODY_LENGTHS_BYTES
    name_end = name_start + name_length
    return Event(client_id, opcode, packet[name_start:name_end], packet[name_end:])


def _acknowledgment_at(data: Buffer, start: int) -> tuple[Acknowledgment | Rejected, int] | None:
    end = start + ACKNOWLEDGMENT_BYTES
    if len(data) < end:
        return None
    packet = bytes(data[start : end - CHECKSUM_BYTES])
    _verify(packet, *CHECKSUM.unpack_from(data, end - CHECKSUM_BYTES))
    _, ack_byte, message_id = ACKNOWLEDGMENT.unpack(packet)
    try:
        return Acknowledgment(get_ack_code(ack_byte), message_id), end
    except RheosError as error:
        return Rejected(error), end


def _verify(packet: bytes, checksum: int) -> None:
    """Raise CorruptedData unless `checksum` is that of all bytes of `packet` before it."""
    computed = crc32(packet)
    if checksum != computed:
        raise CorruptedData(f"checksum is 0x{checksum:08x}, computed 0x{computed:08x}")
