"""How each side of a connection is read: by the protocol's kernel where it can, else by its codec.

What a client sends is read as a broker reads it, and what a broker sends as a client does. Only
messages become records: handshakes, subscriptions, acknowledgments and keep-alive do not.
"""

import functools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.fleximq import HeaderCache
from penstock._kernels.topics import TopicTable
from penstock.decode.identify import keyless_name_end
from penstock.decode.sides import AwaitedIds
from penstock.errors import OutOfSequence
from penstock.limits import TOPICS_MAX
from penstock.model import ByteOrder, Kind, Protocol, topic_name_from_binary
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder
from penstock.wire.fleximq import MessageType
from penstock.wire.rheos import OpCode

__all__ = ["Captured", "Role", "Tools", "new_role"]

_NOBODY: Final = Sender(bytes(16), 0)
_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999; what claims to be later has no time."""


class Captured(NamedTuple):
    """A message as its packet tells it; a `timestamp_us` of 0 is none."""

    topic: str
    value: bytes
    sender: str
    kind: Kind = Kind.PUBLISH
    timestamp_us: int = 0
    created_us: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    correlation: str | None = None
    status: int | None = None


class Tools:
    """What the captures of one task share. `channels` names herald's channels, else `channel/n`."""

    def __init__(
        self, channels: Mapping[int, str] | None = None, *, topics_max: int = TOPICS_MAX
    ) -> None:
        named = dict(channels or {})
        self.channels = [named.get(number, f"channel/{number}") for number in range(256)]
        self.topics = TopicTable(capacity=topics_max)
        self.batch = Batch()
        self.headers = HeaderCache(fleximq.publication)
        for number, name in enumerate(self.channels):
            self.topics.bind_channel(number, name)


class Role(ABC):
    """One side of a connection. Without a kernel for its messages, all are read by the codec."""

    protocol: ClassVar[Protocol]
    has_kernel: ClassVar[bool] = True

    def __init__(self, decoder: Decoder[Any], tools: Tools, order: ByteOrder) -> None:
        self.decoder = decoder
        self.tools = tools
        self.order: ByteOrder = order
        self.sender = ""

    def scan(self, data: memoryview, start: int) -> int:
        """Fill the tools' batch with a run of messages; return where the run ends."""
        del data
        self.tools.batch.clear()
        return start

    def decode_at(self, data: memoryview, start: int) -> tuple[Any, int] | None:
        """Return the packet at `start` and its end, as `wire.decoder.Decoder` does."""
        return self.decoder.decode_at(data, start)

    @abstractmethod
    def record(self, packet: Any) -> Captured | None:  # noqa: ANN401
        """Return the message that a packet is; raise OutOfSequence if this side never sends it."""


# --- Rheos ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _uuid_text(identifier: bytes) -> str:
    return str(uuid.UUID(bytes=identifier))


class _Rheos1FromClient(Role):
    protocol = Protocol.RHEOS1

    def scan(self, data: memoryview, start: int) -> int:
        return rheos1_kernel.scan(data, start, self.tools.batch, self.tools.topics, _NOBODY)

    def record(self, packet: rheos1.Request) -> Captured | None:
        if packet.opcode is not OpCode.PUBLISH:
            return None
        topic = topic_name_from_binary(packet.name)
        return Captured(topic, packet.payload, _uuid_text(packet.client_id))


class _Rheos1FromBroker(Role):
    protocol = Protocol.RHEOS1
    has_kernel = False

    def record(self, packet: rheos1.ClientPacket) -> Captured | None:
        if not isinstance(packet, rheos1.Response):
            return None
        return Captured("", packet.payload, _uuid_text(packet.sender_id))  # it names no topic


class _Rheos2(Role):
    """Either side: a delivery is the very packet that was published."""

    protocol = Protocol.RHEOS2

    def scan(self, data: memoryview, start: int) -> int:
        return rheos2_kernel.scan(data, start, self.tools.batch, self.tools.topics, _NOBODY)

    def record(self, packet: rheos2.Packet) -> Captured | None:
        if not isinstance(packet, rheos2.Event) or packet.opcode is not OpCode.PUBLISH:
            return None
        topic = topic_name_from_binary(packet.name)
        return Captured(topic, packet.data, _uuid_text(packet.client_id))


# --- herald -----------------------------------------------------------------------------------


class _HeraldFromClient(Role):
    protocol = Protocol.HERALD

    def scan(self, data: memoryview, start: int) -> int:
        tools = self.tools
        return herald_kernel.scan(data, start, tools.batch, tools.topics, _NOBODY, order=self.order)

    def record(self, packet: herald.Packet) -> Captured | None:
        match packet:
            case herald.HandshakePub(_, client_id) | herald.HandshakeSub(_, client_id):
                self.sender = client_id
            case herald.Publish(channel, message):
                return Captured(self.tools.channels[channel], message, self.sender)
            case herald.Message() | herald.HandshakeAck() | herald.Error():
                raise OutOfSequence("from a client", type(packet).__name__)
        return None


class _HeraldFromBroker(Role):
    protocol = Protocol.HERALD
    has_kernel = False

    def record(self, packet: herald.Packet) -> Captured | None:
        match packet:
            case herald.Message(channel, timestamp, message):
                time_us = timestamp if timestamp <= _TIME_US_MAX else 0
                topic = self.tools.channels[channel]
                return Captured(topic, message, "", timestamp_us=time_us)
            case (
                herald.Publish()
                | herald.HandshakePub()
                | herald.HandshakeSub()
                | herald.Subscribe()
                | herald.Unsubscribe()
            ):
                raise OutOfSequence("from a broker", type(packet).__name__)
        return None


# --- fleximq ----------------------------------------------------------------------------------

_KINDS: Final[Mapping[MessageType, Kind]] = MappingProxyType(
    {
        MessageType.REQ: Kind.REQUEST,
        MessageType.REP: Kind.REPLY,
        MessageType.NOTIF: Kind.NOTIFY,
        MessageType.BCAST: Kind.BROADCAST,
        MessageType.PUB: Kind.PUBLISH,
    }
)


class _Fleximq(Role):
    """Either side: the client id of a message is its sender's, whoever passes it on."""

    protocol = Protocol.FLEXIMQ
    _sender = _NOBODY

    def scan(self, data: memoryview, start: int) -> int:
        """See the base class: a run is of one sender, the one at `start`."""
        if len(data) < start + 6 or data[start + 1] != MessageType.PUB:
            return super().scan(data, start)
        number = int.from_bytes(data[start + 2 : start + 6], "big")
        if not number:
            return super().scan(data, start)
        if number != self._sender.number:
            self._sender = Sender(bytes(16), number)
            self.sender = str(number)
        tools = self.tools
        return fleximq_kernel.scan(
            data, start, tools.batch, tools.topics, self._sender, headers=tools.headers
        )

    def record(self, packet: fleximq.Message) -> Captured | None:
        header = packet.header
        kind = _KINDS.get(packet.type)
        if kind is None or (kind is Kind.REPLY and header.routing is None):
            return None  # a REP without routing answers JOIN
        return Captured(
            header.topic or "",
            fleximq.raw_value(packet.payload),
            str(packet.client_id),
            kind,
            headers=[
                entry
                for target in header.routing or ()
                for entry in (("to", b"%d" % target.client_id), ("path", target.path.encode()))
            ],
            correlation=header.reqrep.id if header.reqrep is not None else None,
            status=header.status,
        )


# --- LamaMQ -----------------------------------------------------------------------------------


class _LamaFromClient(Role):
    protocol = Protocol.LAMAMQ
    decoder: lamamq.BrokerDecoder
    _open = False
    _answers = False  # a client that registers a hook may answer what the broker asks

    def __init__(self, tools: Tools, order: ByteOrder, first_bytes: bytes) -> None:
        self._keyless_name_end = keyless_name_end(first_bytes, order)
        decoder = lamamq.BrokerDecoder(order=order, key_required=not self._keyless_name_end)
        decoder.awaited = AwaitedIds(
            lambda number: self._answers and number >= lamamq.BROKER_ID_BIT
        )
        super().__init__(decoder, tools, order)

    def scan(self, data: memoryview, start: int) -> int:
        tools = self.tools
        if not self._open:
            return super().scan(data, start)
        end = lamamq_kernel.scan(
            data,
            start,
            tools.batch,
            tools.topics,
            _NOBODY,
            order=self.order,
            answers_awaited=self._answers,
        )
        if end != start:
            self.decoder.skipped()
        return end

    def decode_at(self, data: memoryview, start: int) -> tuple[Any, int] | None:
        """See the base class: a name without a key is shown without what follows it."""
        if not self.sender and self._keyless_name_end:
            data = data[: self._keyless_name_end]
        return super().decode_at(data, start)

    def record(self, packet: lamamq.FromClient) -> Captured | None:
        match packet:
            case lamamq.Authentication(name):
                self.sender = name
            case lamamq.VersionChoice():
                self._open = True
            case lamamq.Register():
                self._answers = True
            case lamamq.Push(_, message):
                return _lama_record(message, self.sender)
            case lamamq.Forward():
                raise OutOfSequence("from a client", "Forward")
        return None


class _LamaFromBroker(Role):
    protocol = Protocol.LAMAMQ
    has_kernel = False

    def __init__(self, tools: Tools, order: ByteOrder) -> None:
        decoder = lamamq.ClientDecoder(order=order)
        decoder.awaited = AwaitedIds(lambda number: number < lamamq.BROKER_ID_BIT)
        super().__init__(decoder, tools, order)

    def record(self, packet: lamamq.FromBroker) -> Captured | None:
        return _lama_record(packet.message, "") if isinstance(packet, lamamq.Forward) else None


def _lama_record(message: lamamq.Message, sender: str) -> Captured:
    return Captured(
        message.routing_key,
        message.payload,
        sender,
        created_us=message.created_at * 1_000_000,
        headers=message.headers,
    )


# --- Which is which ---------------------------------------------------------------------------


def new_role(
    protocol: Protocol, order: ByteOrder, tools: Tools, *, from_client: bool, first_bytes: bytes
) -> Role:
    """Return how one side of a connection is read; `first_bytes` are its own."""
    match protocol, from_client:
        case Protocol.RHEOS1, True:
            return _Rheos1FromClient(rheos1.BrokerDecoder(), tools, order)
        case Protocol.RHEOS1, False:
            return _Rheos1FromBroker(rheos1.ClientDecoder(), tools, order)
        case Protocol.RHEOS2, True:
            return _Rheos2(rheos2.BrokerDecoder(), tools, order)
        case Protocol.RHEOS2, False:
            return _Rheos2(rheos2.ClientDecoder(), tools, order)
        case Protocol.HERALD, True:
            return _HeraldFromClient(herald.Decoder(order=order), tools, order)
        case Protocol.HERALD, False:
            return _HeraldFromBroker(herald.Decoder(order=order), tools, order)
        case Protocol.FLEXIMQ, True:
            return _Fleximq(fleximq.BrokerDecoder(), tools, order)
        case Protocol.FLEXIMQ, False:
            return _Fleximq(fleximq.ClientDecoder(), tools, order)
        case _, True:
            return _LamaFromClient(tools, order, first_bytes)
        case _:
            return _LamaFromBroker(tools, order)
