"""Rheos, both versions: each request is answered by one acknowledgment, in order.

There is no handshake, and a broker learns the client id from the first request. So that a client
without requests is not disconnected, the session starts with a SUBSCRIBE to the empty name, which
no topic has. Any answer to it completes the start. The same request is a ping.
"""

import secrets
import uuid
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final
from zlib import crc32

from penstock import positions
from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Delivered, Event, Failed, Ready
from penstock.client.options import Credentials
from penstock.client.sessions.base import NO_EXTRAS, Extras, Session, check_sizes
from penstock.client.topics import plain_topic, without_replay
from penstock.client.values import Delivery
from penstock.model import (
    TEMPORARY_OFFSET,
    binary_topic_name,
    message_id,
    topic_name_from_binary,
)
from penstock.protocols import Protocol
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2, RHEOS_BODY_BYTES_MAX
from penstock.topic_names import check_topic_name
from penstock.wire import rheos1, rheos2
from penstock.wire.rheos import (
    HEADER,
    IDENTIFIER_BYTES,
    MAGIC,
    U16_MAX,
    AckCode,
    OpCode,
    check,
)
from penstock.wire.rheos2.encoder import BODY_LENGTHS, BODY_LENGTHS_BYTES, CHECKSUM

__all__ = ["Rheos1Session", "Rheos2Session", "rheos_client_id"]

_GREETING: Final = 0  # tickets start at 1
_ASKING: Final = -1
_TEXTS: Final = {
    OpCode.CREATE: "FAILED: the topic exists already, or the broker refuses it",
    OpCode.SUBSCRIBE: "FAILED: the topic does not exist, or the broker refuses the subscription",
    OpCode.PUBLISH: "FAILED: the topic does not exist, or the broker refuses the message",
}
_LATER: Final = "; a later attempt, or one at another node, may succeed"
_TEMPORARY: Final = message_id(0, partition=0, offset=TEMPORARY_OFFSET)[8:]


def rheos_client_id(name: str | None) -> bytes:
    """Return the 16 bytes of a client id: `name` if it is a UUID, else a hash of the name.

    Without a name the id is random.
    """
    if name is None:
        return uuid.uuid4().bytes
    try:
        return uuid.UUID(name).bytes
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, name).bytes


class _RheosSession(Session):
    """Common part of both versions."""

    def __init__(self, client_id: bytes) -> None:
        super().__init__()
        self._client_id = client_id
        self._awaited: deque[tuple[int, OpCode]] = deque()
        self._pings: set[int] = set()
        self._key = secrets.token_bytes(IDENTIFIER_BYTES)  # marks positions: no client can know it
        self._asked = False

    @abstractmethod
    def _encode(self, opcode: OpCode, name: bytes, payload: bytes) -> bytes:
        """Return one request."""

    @abstractmethod
    def _publishes(self, name: bytes, values: Sequence[bytes]) -> list[bytes]:
        """Return the parts of the requests that publish `values`."""

    def start(self) -> None:
        """See the base class."""
        self._ask(OpCode.SUBSCRIBE, b"", _GREETING)

    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """See the base class."""
        self._check_publish(topic, extras)
        name = binary_topic_name(topic)
        check("name length", len(name), U16_MAX)
        self._out += self._publishes(name, values)
        tickets = self._tickets(len(values))
        self._awaited.extend((ticket, OpCode.PUBLISH) for ticket in tickets)
        return tickets

    def subscribe(self, topic: str) -> int:
        """See the base class; before the first subscription, ask for positions."""
        name = binary_topic_name(topic)
        request = self._encode(OpCode.SUBSCRIBE, name, b"")
        if not self._asked:
            self._asked = True
            asking = positions.ASK_NAME.encode() + self._key
            self._out.append(self._encode(OpCode.SUBSCRIBE, b"", asking))
            self._awaited.append((_ASKING, OpCode.SUBSCRIBE))
        ticket = self._ticket()
        self._out.append(request)
        self._awaited.append((ticket, OpCode.SUBSCRIBE))
        return ticket

    def create_topic(self, topic: str) -> int:
        """See the base class."""
        check_topic_name(topic)
        return self._ask(OpCode.CREATE, binary_topic_name(topic), self._ticket())

    def ping(self) -> int:
        """See the base class."""
        ticket = self._ask(OpCode.SUBSCRIBE, b"", self._ticket())
        self._pings.add(ticket)
        return ticket

    def _ask(self, opcode: OpCode, name: bytes, ticket: int) -> int:
        self._out.append(self._encode(opcode, name, b""))
        self._awaited.append((ticket, opcode))
        return ticket

    def _acknowledged(self, code: AckCode, identifier: bytes) -> Event | None:
        if not self._awaited:
            return None
        ticket, opcode = self._awaited.popleft()
        if ticket == _GREETING:
            return Ready(None)
        if ticket == _ASKING:
            return None
        if ticket in self._pings:
            self._pings.remove(ticket)
            return Acknowledged(ticket)
        if code is AckCode.SUCCESS:
            return Acknowledged(ticket, identifier if opcode is OpCode.PUBLISH else None)
        is_temporary = identifier[8:] == _TEMPORARY
        text = _TEXTS[opcode] + (_LATER if is_temporary else "")
        return Failed(ticket, Refused(self.protocol, code, text, says_retriable=is_temporary))


class Rheos1Session(_RheosSession):
    """Rheos v1. A delivery has no topic; it is known only with a single subscription."""

    protocol: ClassVar[Protocol] = RHEOS1

    def __init__(self, client_id: bytes) -> None:
        super().__init__(client_id)
        self.decoder = rheos1.ClientDecoder()
        self._subscribed: set[str] = set()
        self._only_topic: str | None = None

    def subscribe(self, topic: str) -> int:
        """See the base class."""
        ticket = super().subscribe(topic)
        self._subscribed.add(without_replay(topic))
        self._only_topic = plain_topic(topic) if len(self._subscribed) == 1 else None
        return ticket

    def _encode(self, opcode: OpCode, name: bytes, payload: bytes) -> bytes:
        return rheos1.encode(rheos1.Request(self._client_id, opcode, name, payload))

    def _publishes(self, name: bytes, values: Sequence[bytes]) -> list[bytes]:
        check_sizes(values, U16_MAX)
        counted_name = len(name).to_bytes(2, "little") + name
        rest = len(counted_name) + 2
        pack, client_id, opcode = HEADER.pack, self._client_id, OpCode.PUBLISH
        parts: list[bytes] = []
        for value in values:
            size = len(value)
            parts += (
                pack(MAGIC, rest + size, client_id, opcode),
                counted_name,
                size.to_bytes(2, "little"),
                value,
            )
        return parts

    def _received(self, packet: Any) -> Event | None:  # noqa: ANN401
        if isinstance(packet, rheos1.Acknowledgment):
            return self._acknowledged(packet.code, packet.message_id)
        if packet.sender_id == self._key:
            return self._positions(packet.payload)
        place = next(self._places, None)
        return Delivered(
            Delivery(self._only_topic, packet.payload, packet, sender=packet.sender_id, place=place)
        )


class Rheos2Session(_RheosSession):
    """Rheos v2."""

    protocol: ClassVar[Protocol] = RHEOS2

    def __init__(self, client_id: bytes) -> None:
        super().__init__(client_id)
        self.decoder = rheos2.ClientDecoder()
        self._last_name = (b"", "")

    def _encode(self, opcode: OpCode, name: bytes, payload: bytes) -> bytes:
        return rheos2.encode(rheos2.Event(self._client_id, opcode, name, payload))

    def _publishes(self, name: bytes, values: Sequence[bytes]) -> list[bytes]:
        rest = BODY_LENGTHS_BYTES + len(name)
        check_sizes(values, RHEOS_BODY_BYTES_MAX - rest)
        pack, client_id, opcode = HEADER.pack, self._client_id, OpCode.PUBLISH
        lengths, checksum = BODY_LENGTHS.pack, CHECKSUM.pack
        parts: list[bytes] = []
        for value in values:
            size = len(value)
            head = pack(MAGIC, rest + size, client_id, opcode) + lengths(len(name), size) + name
            parts += head, value, checksum(crc32(value, crc32(head)))
        return parts

    def _received(self, packet: Any) -> Event | None:  # noqa: ANN401
        if isinstance(packet, rheos2.Acknowledgment):
            return self._acknowledged(packet.code, packet.message_id)
        if not packet.name and packet.client_id == self._key:
            return self._positions(packet.data)
        if packet.name != self._last_name[0]:
            self._last_name = (packet.name, topic_name_from_binary(packet.name))
        topic, place = self._last_name[1], next(self._places, None)
        return Delivered(Delivery(topic, packet.data, packet, sender=packet.client_id, place=place))


def rheos1_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client; all have the same client id."""
    client_id = rheos_client_id(credentials.name)
    return lambda: Rheos1Session(client_id)


def rheos2_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client; all have the same client id."""
    client_id = rheos_client_id(credentials.name)
    return lambda: Rheos2Session(client_id)
