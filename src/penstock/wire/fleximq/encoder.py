"""The encoder of fleximq. It applies the rules that the decoders check.

Limits that are settings of a broker are applied at their highest values: a broker with lower ones
refuses the message itself.
"""

from penstock.errors import FieldOutOfRange
from penstock.protocols.fleximq import (
    FLEXIMQ_HEADER_BYTES_MAX,
    FLEXIMQ_MESSAGE_BYTES_CEILING,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
)
from penstock.wire.fleximq.errors import FleximqError, InvalidMessage
from penstock.wire.fleximq.headers import (
    HEADER_CEILINGS,
    check_header,
    encode_header,
    field_fault,
    present_fields,
)
from penstock.wire.fleximq.packets import (
    BASE,
    MESSAGE_BYTES_MIN,
    PAYLOAD_LENGTH,
    VERSION,
    ClientId,
    Message,
    MessageType,
    is_success,
)
from penstock.wire.fleximq.payloads import check_payload

__all__ = ["encode"]


def encode(message: Message) -> bytes:
    """Encode a message of either role.

    A REP without `routing` is the reply to JOIN; it must have a `status`. Raise InvalidMessage if
    a receiver would reject the message, FieldOutOfRange if a number or size does not fit, and
    Unencodable if a text is not UTF-8.
    """
    _check(message)
    header = encode_header(message.header)
    payload = message.payload
    message_bytes = MESSAGE_BYTES_MIN + len(header) + len(payload)
    for name, value, value_max in (
        ("client id", message.client_id, ClientId.RESERVED_MAX),
        ("header length", len(header), FLEXIMQ_HEADER_BYTES_MAX),
        ("message length", message_bytes, FLEXIMQ_MESSAGE_BYTES_CEILING),
    ):
        if not 0 <= value <= value_max:
            raise FieldOutOfRange(name, value, value_max)
    base = BASE.pack(VERSION, message.type, message.client_id, len(header))
    return b"".join((base, header, PAYLOAD_LENGTH.pack(len(payload)), payload))


def _check(message: Message) -> None:
    """Raise InvalidMessage if a receiver would reject the message."""
    header = message.header
    join_reply = message.type is MessageType.REP and (
        header.routing is None or header.reqrep is None
    )
    fault = field_fault(message.type, present_fields(header), join_reply=join_reply)
    if fault is not None:
        raise InvalidMessage(fault)
    if join_reply and header.status is None:
        raise InvalidMessage("REP without routing or reqrep, the reply to JOIN, without status")
    if header.reqrep is not None and not header.reqrep.id:
        raise InvalidMessage("reqrep.id is empty")
    unassigned = message.client_id == ClientId.UNASSIGNED
    if message.type is MessageType.JOIN and not unassigned:
        raise InvalidMessage(f"JOIN from client {message.client_id}, not 0")
    may_be_unassigned = join_reply and not is_success(header.status)
    if unassigned and message.type is not MessageType.JOIN and not may_be_unassigned:
        raise InvalidMessage(f"{message.type.name} from client 0")
    try:
        check_header(message.type, header, limits=HEADER_CEILINGS)
        check_payload(message.payload, depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING)
    except FleximqError as error:
        raise InvalidMessage(str(error)) from None
