"""Decoders of LamaMQ, one per role. `layouts` draws the byte layouts.

A LamaMQ packet has no length field: its end is known only after its last field. A fault in a field
of known size is noted, and the packet is rejected at its end. A fault that hides the end (an
unknown type, a size above its limit) loses framing. In the handshake every fault loses framing.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.model import ByteOrder
from penstock.wire import decoder
from penstock.wire.decoder import Buffer, Rejected
from penstock.wire.lamamq.bodies import BODIES, forward
from penstock.wire.lamamq.cursor import Cursor, Incomplete
from penstock.wire.lamamq.errors import BadRequest
from penstock.wire.lamamq.layouts import LAYOUTS
from penstock.wire.lamamq.limits import DEFAULT_LIMITS, Limits
from penstock.wire.lamamq.packets import (
    BROKER_ID_BIT,
    Answer,
    Authentication,
    ErrorCode,
    FromBroker,
    FromClient,
    MessageType,
    VersionChoice,
    VersionOffer,
    accepts,
)
from penstock.wire.lamamq.states import BrokerState, ClientState

__all__ = ["BrokerDecoder", "ClientDecoder"]

Received = TypeVar("Received")

_AWAITING_AUTHENTICATION, _AWAITING_VERSION_CHOICE, _OPEN = BrokerState
_ONE_BYTE_KEY: Final = bytes.fromhex("01 00 00 00")
"""The length of a key of one byte, in little-endian order."""
_MESSAGES: Final = (MessageType.PUSH, MessageType.FORWARD)
"""Types that can also be the error of an answer: 0 is none."""
_MESSAGE_START_BYTES: Final = 8
_ERROR_CODES: Final = {code.value: code for code in ErrorCode}


class _RoleDecoder(decoder.Decoder[Received]):
    """Common part of both roles: reading one packet, and the ids of awaited answers."""

    def __init__(self, order: ByteOrder, limits: Limits) -> None:
        super().__init__()
        self.awaited: set[int] = set()
        self._layouts = LAYOUTS[order]
        self._limits = limits
        self._needed = 1  # bytes needed before it is worth reading the next packet again

    def decode_at(self, data: Buffer, start: int) -> tuple[Received | Rejected, int] | None:
        """See the base class. A packet is read again only after its next field is complete."""
        if len(data) - start < self._needed:
            return None
        cursor = Cursor(data, start, self._layouts)
        try:
            packet = self._read(cursor)
        except Incomplete as incomplete:
            self._needed = incomplete.end - start
            return None
        self._needed = 1
        if cursor.fault is not None:
            return Rejected(BadRequest(cursor.message_id, cursor.fault)), cursor.position
        return packet, cursor.position

    def skipped(self) -> None:
        """Forget the incomplete packet: a kernel has decoded it."""
        self._needed = 1

    @abstractmethod
    def _read(self, cursor: Cursor) -> Received:
        """Return the packet at `cursor`, a placeholder if the cursor noted a fault."""

    def _answer(self, cursor: Cursor, error: int) -> Answer:
        """Read the rest of an answer and remove its id from the awaited ones."""
        code, text = None, ""
        if error:
            text = cursor.string("error message", self._limits.error_message_bytes_max)
            code = _ERROR_CODES.get(error)
            if code is None:
                cursor.note(f"unknown error code {error}")
        self.awaited.discard(cursor.message_id)
        return Answer(cursor.message_id, code, text)


class BrokerDecoder(_RoleDecoder[FromClient]):
    """Decodes packets from a client: authentication, version choice, then messages.

    `key_required` says whether a key must follow the name. Otherwise the authentication ends with
    the name, so that the version is offered, unless a key has arrived with it. Behind the name and
    the offer, two bytes that are an offered version are the choice; other bytes are the length of a
    key, if they can be one. In little-endian order the length 1 starts like the choice of 1.0: a
    key of one byte is read only if its length has arrived with the name.

    `awaited` holds the ids of hook calls: a packet with such an id is its answer. `recalls` says
    whether an id was that of a plain Forward: a packet with such an id is its answer. A client that
    uses ids of the broker's range for its own messages may meet such an id by accident: then it is
    an answer only if it does not read as a message.
    """

    def __init__(
        self,
        *,
        order: ByteOrder = "big",
        key_required: bool | Callable[[str], bool] = False,
        recalls: Callable[[int], bool] = lambda message_id: False,  # noqa: ARG005
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(order, limits)
        self._order = order
        self._recalls = recalls
        self._has_high_ids = False
        self._key_required = key_required
        self._has_key = False
        self._phase = _AWAITING_AUTHENTICATION

    def _read(self, cursor: Cursor) -> FromClient:
        if self._phase is _OPEN:
            kind = cursor.header()
            if cursor.message_id in self.awaited:
                return self._answer(cursor, kind)
            body = BODIES.get(kind)
            if cursor.message_id & BROKER_ID_BIT and (body is None or kind in _MESSAGES):
                if not self._recalls(cursor.message_id):
                    self._has_high_ids = True
                elif not (body and self._has_high_ids and self._reads_as_message(cursor)):
                    return self._answer(cursor, kind)
            if body is None:
                raise BadRequest(cursor.message_id, f"unknown message type {kind}")
            return body(cursor, self._limits)
        if self._phase is _AWAITING_AUTHENTICATION:
            authentication = self._authentication(cursor)
            self._phase = _AWAITING_VERSION_CHOICE
            return authentication
        if not self._has_key and self._key_follows(cursor):
            self._key(cursor)  # not required, so not looked at
        choice = VersionChoice(cursor.byte(), cursor.byte())
        self._phase = _OPEN
        return choice

    def _reads_as_message(self, cursor: Cursor) -> bool:
        """Return whether a creation time and the length of a routing key follow."""
        start = cursor.peek(_MESSAGE_START_BYTES)
        if len(start) < _MESSAGE_START_BYTES:
            return False
        (length,) = self._layouts.u32.unpack_from(start, 4)
        return bool(0 < length <= self._limits.routing_key_bytes_max)

    def _authentication(self, cursor: Cursor) -> Authentication:
        method = cursor.byte()
        if method:
            raise BadRequest(0, f"unknown authentication method {method}")
        name = cursor.string("identity name", self._limits.identity_name_bytes_max)
        if cursor.fault is not None:
            raise BadRequest(0, cursor.fault)
        if not name:
            raise BadRequest(0, "the identity name is empty")
        required = self._key_required
        required = required(name) if callable(required) else required
        self._has_key = required or self._key_came_with_name(cursor)
        return Authentication(name, self._key(cursor) if self._has_key else None, method)

    def _key(self, cursor: Cursor) -> bytes:
        return cursor.buffer("identity key", self._limits.identity_key_bytes_max)

    def _key_came_with_name(self, cursor: Cursor) -> bool:
        if self._order == "little" and cursor.peek(4) == _ONE_BYTE_KEY:
            return True
        try:
            return self._key_follows(cursor)
        except Incomplete:
            return False

    def _key_follows(self, cursor: Cursor) -> bool:
        """Return whether the next bytes are the length of a key, not a version choice.

        No key is as long as 64 KiB, so two of the four bytes of its length are zero: the first two
        in network order.
        """
        start = cursor.peek(4)
        if len(start) < 2:
            raise Incomplete(cursor.position + 2)
        if accepts(VersionChoice(start[0], start[1])):
            return False
        if self._order == "big":
            return start[:2] == bytes(2)
        if len(start) < 4:
            raise Incomplete(cursor.position + 4)
        return start[2:] == bytes(2)


class ClientDecoder(_RoleDecoder[FromBroker]):
    """Decodes packets from a broker: the version offer, then answers and forwards.

    Id 0 is always an answer: the broker refuses a handshake with it, and no offer is all zero.
    `awaited` holds the ids of the client's requests: a packet with such an id is its answer. Any
    other packet must be a forward; an answer that is not awaited loses framing.
    """

    def __init__(self, *, order: ByteOrder = "big", limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(order, limits)
        self._phase = ClientState.AWAITING_OFFER

    def _read(self, cursor: Cursor) -> FromBroker:
        if self._phase is ClientState.AWAITING_OFFER:
            start = cursor.position
            versions = cursor.unpack(self._layouts.offer)
            if any(versions):
                self._phase = ClientState.OPEN
                return VersionOffer(maximum=versions[:2], minimum=versions[2:])
            cursor.position = start
        kind = cursor.header()
        if cursor.message_id == 0 or cursor.message_id in self.awaited:
            return self._answer(cursor, kind)
        if kind != MessageType.FORWARD:
            raise BadRequest(cursor.message_id, f"type {kind} is no forward, nor an awaited answer")
        return forward(cursor, self._limits)
