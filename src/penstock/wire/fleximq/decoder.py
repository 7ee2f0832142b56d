"""Decoders of fleximq, one per role.

A version other than 1 and a length above its limit lose framing. Any other fault rejects one
message. The type is checked first, then client id, header and payload.
"""

from abc import abstractmethod

from penstock.errors import FieldOutOfRange
from penstock.protocols.fleximq import (
    FLEXIMQ_HEADER_BYTES_MAX,
    FLEXIMQ_MESSAGE_BYTES_CEILING,
    FLEXIMQ_MESSAGE_BYTES_MAX,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
    FLEXIMQ_PAYLOAD_DEPTH_MAX,
)
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.fleximq.errors import (
    BadClientId,
    FleximqError,
    PayloadTooLarge,
    UnknownType,
    UnsupportedVersion,
)
from penstock.wire.fleximq.headers import (
    HEADER_CEILINGS,
    HEADER_LIMITS,
    HeaderLimits,
    parse_header,
    reqrep_id,
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

__all__ = ["BrokerDecoder", "ClientDecoder"]


class _RoleDecoder(decoder.Decoder[Message]):
    """Common part of both roles: the base format of section 2.1 and its limits.

    Limits above those of section 7.1 raise FieldOutOfRange.
    """

    def __init__(
        self,
        *,
        header_bytes_max: int = FLEXIMQ_HEADER_BYTES_MAX,
        message_bytes_max: int = FLEXIMQ_MESSAGE_BYTES_MAX,
        header_limits: HeaderLimits = HEADER_LIMITS,
    ) -> None:
        super().__init__()
        self._header_limits = header_limits
        for name, value, ceiling in (
            ("header_bytes_max", header_bytes_max, FLEXIMQ_HEADER_BYTES_MAX),
            ("message_bytes_max", message_bytes_max, FLEXIMQ_MESSAGE_BYTES_CEILING),
        ):
            if not 0 <= value <= ceiling:
                raise FieldOutOfRange(name, value, ceiling)
        self._header_bytes_max = header_bytes_max
        self._message_bytes_max = message_bytes_max

    def decode_at(self, data: Buffer, start: int) -> tuple[Message | Rejected, int] | None:
        """See the base class; version and lengths are checked as soon as they are complete."""
        if len(data) > start and data[start] != VERSION:
            raise UnsupportedVersion(data[start])
        header_start = start + BASE.size
        if len(data) < header_start:
            return None
        _, message_type, client_id, header_bytes = BASE.unpack_from(data, start)
        if header_bytes > self._header_bytes_max:
            raise PayloadTooLarge("header", header_bytes, self._header_bytes_max, message_type)
        message_bytes = MESSAGE_BYTES_MIN + header_bytes  # at least
        if message_bytes > self._message_bytes_max:
            raise PayloadTooLarge("message", message_bytes, self._message_bytes_max, message_type)
        header_end = header_start + header_bytes
        payload_start = header_end + PAYLOAD_LENGTH.size
        if len(data) < payload_start:
            return None
        (payload_bytes,) = PAYLOAD_LENGTH.unpack_from(data, header_end)
        message_bytes += payload_bytes
        if message_bytes > self._message_bytes_max:
            raise PayloadTooLarge(
                "message",
                message_bytes,
                self._message_bytes_max,
                message_type,
                reqrep_id(bytes(data[header_start:header_end]), limits=self._header_limits),
            )
        end = payload_start + payload_bytes
        if len(data) < end:
            return None
        with memoryview(data) as view:
            header = bytes(view[header_start:header_end])
            payload = bytes(view[payload_start:end])
        try:
            return self._message(_message_type(message_type), client_id, header, payload), end
        except FleximqError as error:
            identifier = reqrep_id(header, limits=self._header_limits)
            fault = error.about(message_type=message_type, reqrep_id=identifier)
            return Rejected(fault), end

    @abstractmethod
    def _message(
        self, message_type: MessageType, client_id: int, header: bytes, payload: bytes
    ) -> Message:
        """Return the message of one frame; raise FleximqError if this role may not receive it."""


def _message_type(value: int) -> MessageType:
    try:
        return MessageType(value)
    except ValueError:
        raise UnknownType(value) from None


class BrokerDecoder(_RoleDecoder):
    """Decodes messages from a client.

    `strict` rejects JOIN with `reqrep`, which section 2.2.3 forbids and section 4.2 uses, and
    fields whose value is nil.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        header_bytes_max: int = FLEXIMQ_HEADER_BYTES_MAX,
        message_bytes_max: int = FLEXIMQ_MESSAGE_BYTES_MAX,
        header_limits: HeaderLimits = HEADER_LIMITS,
        payload_depth_max: int = FLEXIMQ_PAYLOAD_DEPTH_MAX,
    ) -> None:
        super().__init__(
            header_bytes_max=header_bytes_max,
            message_bytes_max=message_bytes_max,
            header_limits=header_limits,
        )
        self._strict = strict
        self._payload_depth_max = payload_depth_max

    def _message(
        self, message_type: MessageType, client_id: int, header: bytes, payload: bytes
    ) -> Message:
        if (client_id == ClientId.UNASSIGNED) is not (message_type is MessageType.JOIN):
            raise BadClientId(client_id)  # section 4.1.2
        fields = parse_header(header, message_type, strict=self._strict, limits=self._header_limits)
        check_payload(payload, depth_max=self._payload_depth_max)
        return Message(message_type, client_id, fields, payload)


class ClientDecoder(_RoleDecoder):
    """Decodes messages from the broker.

    Up to the first REP that reports success, a REP may lack `routing`: it is the reply to JOIN.
    Only the reply to a failed JOIN may have client id 0.
    """

    def __init__(
        self,
        *,
        header_bytes_max: int = FLEXIMQ_HEADER_BYTES_MAX,
        message_bytes_max: int = FLEXIMQ_MESSAGE_BYTES_MAX,
    ) -> None:
        super().__init__(
            header_bytes_max=header_bytes_max,
            message_bytes_max=message_bytes_max,
            header_limits=HEADER_CEILINGS,
        )
        self._joined = False

    def _message(
        self, message_type: MessageType, client_id: int, header: bytes, payload: bytes
    ) -> Message:
        if message_type is MessageType.JOIN:
            raise UnknownType(message_type)
        join_reply = message_type is MessageType.REP and not self._joined
        if client_id == ClientId.UNASSIGNED and not join_reply:
            raise BadClientId(client_id)
        fields = parse_header(
            header, message_type, join_reply=join_reply, limits=self._header_limits
        )
        succeeded = is_success(fields.status)
        if client_id == ClientId.UNASSIGNED and (succeeded or fields.routing is not None):
            raise BadClientId(client_id)
        check_payload(payload, depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING)
        if join_reply and succeeded:
            self._joined = True
        return Message(message_type, client_id, fields, payload)
