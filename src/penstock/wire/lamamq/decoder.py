"""LamaMQ bytes to packets, one decoder for each role. The byte layouts are drawn in `layouts`.

A LamaMQ packet does not announce its length: its end is known once its last field is. What is
wrong in a field of known size is noted until then and the packet rejected; what hides the end (an
unknown type, a size above its limit) loses framing. In the handshake every fault does: nothing
can follow one.
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
    Answer,
    Authentication,
    ErrorCode,
    FromBroker,
    FromClient,
    MessageType,
    VersionChoice,
    VersionOffer,
)
from penstock.wire.lamamq.states import BrokerState, ClientState

__all__ = ["BrokerDecoder", "ClientDecoder"]

Received = TypeVar("Received")

_AWAITING_AUTHENTICATION, _AWAITING_VERSION_CHOICE, _OPEN = BrokerState
_ERROR_CODES: Final = {code.value: code for code in ErrorCode}


class _RoleDecoder(decoder.Decoder[Received]):
    """What both roles share: the walk over one packet, and the ids they await answers for."""

    def __init__(self, order: ByteOrder, limits: Limits) -> None:
        super().__init__()
        self.awaited: set[int] = set()
        self._layouts = LAYOUTS[order]
        self._limits = limits
        self._needed = 1  # bytes without which reading the next packet again is in vain

    def decode_at(self, data: Buffer, start: int) -> tuple[Received | Rejected, int] | None:
        """See the base class. A packet is read from its start again only when a field is whole."""
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
        """Learn that the packet at hand was taken by another: what was missing of it is history."""
        self._needed = 1

    @abstractmethod
    def _read(self, cursor: Cursor) -> Received:
        """Return the packet at `cursor`, a stand-in if the cursor noted a fault."""

    def _answer(self, cursor: Cursor, error: int) -> Answer:
        """Read the rest of an answer; its id is then awaited no more."""
        code, text = None, ""
        if error:
            text = cursor.string("error message", self._limits.error_message_bytes_max)
            code = _ERROR_CODES.get(error)
            if code is None:
                cursor.note(f"unknown error code {error}")
        self.awaited.discard(cursor.message_id)
        return Answer(cursor.message_id, code, text)


class BrokerDecoder(_RoleDecoder[FromClient]):
    """Cuts what a client sends into packets: authentication, version choice, then messages.

    `key_required` says whether a name must be followed by a key. Where it need not, one is read
    only if a byte of it is there when the name is whole: the one place where the cut of the stream
    counts, and where a client that sends its version choice ahead of the offer is misread.

    `awaited` holds the ids of hook calls: the packet with such an id is the answer to it.
    """

    def __init__(
        self,
        *,
        order: ByteOrder = "big",
        key_required: bool | Callable[[str], bool] = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(order, limits)
        self._key_required = key_required
        self._phase = _AWAITING_AUTHENTICATION

    def _read(self, cursor: Cursor) -> FromClient:
        if self._phase is _OPEN:
            kind = cursor.header()
            if cursor.message_id in self.awaited:
                return self._answer(cursor, kind)
            body = BODIES.get(kind)
            if body is None:
                raise BadRequest(cursor.message_id, f"unknown message type {kind}")
            return body(cursor, self._limits)
        if self._phase is _AWAITING_AUTHENTICATION:
            authentication = self._authentication(cursor)
            self._phase = _AWAITING_VERSION_CHOICE
            return authentication
        choice = VersionChoice(cursor.byte(), cursor.byte())
        self._phase = _OPEN
        return choice

    def _authentication(self, cursor: Cursor) -> Authentication:
        method = cursor.byte()
        if method:
            raise BadRequest(0, f"unknown authentication method {method}")
        name = cursor.string("identity name", self._limits.identity_name_bytes_max)
        if cursor.fault is not None:
            raise BadRequest(0, cursor.fault)
        if not name:
            raise BadRequest(0, "the identity name is empty")
        key = None
        required = self._key_required
        if (required(name) if callable(required) else required) or cursor.has_more:
            key = cursor.buffer("identity key", self._limits.identity_key_bytes_max)
        return Authentication(name, key, method)


class ClientDecoder(_RoleDecoder[FromBroker]):
    """Cuts what a broker sends into packets: its version offer, then answers and forwards.

    Id 0 is always an answer: the broker refuses a handshake with it, and no offer is all zero.
    `awaited` holds the ids of the client's requests: the packet with such an id is the answer to
    it. Any other packet must be a forward; an answer that nobody awaits loses framing.
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
