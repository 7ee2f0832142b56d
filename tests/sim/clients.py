"""Simulated clients: each speaks one protocol with its codec and records what it receives."""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from penstock.model import ByteOrder, topic_name_from_binary
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder, Rejected
from penstock.wire.rheos import AckCode, OpCode
from tests.sim.links import SimulatedLink


class SimulatedClient(ABC):
    """One client; `received` is every value that was delivered to it, in order.

    `on_delivery` is called for every message when it is written to the link. `lost_values` are the
    values whose commit failed: they must be refused, and no others.
    """

    protocol: ClassVar[Protocol]
    wildcards: ClassVar[bool] = True
    replays: ClassVar[bool] = True
    resumes: ClassVar[bool] = False

    def __init__(
        self, link: SimulatedLink, randomness: random.Random, number: int, order: ByteOrder
    ) -> None:
        self.link = link
        self.randomness = randomness
        self.number = number
        self.order: ByteOrder = order
        self.ready = False
        self.received: list[tuple[str | None, bytes]] = []
        self.deliveries: list[tuple[str | None, bytes]] = []  # all that was written to it
        self.published = 0
        self.acknowledged = 0
        self.lost_values: set[bytes] = set()
        self.subscribed: set[int | None] = set()
        """The channels that it has subscribed to, None for all of them; unused for herald."""
        self.on_delivery: Callable[[str | None, bytes], None] = lambda *_: None
        self.decoder = self.new_decoder()
        self.written = self.new_decoder()  # decodes what is written, before it is read
        link.on_write = self._wrote

    @abstractmethod
    def new_decoder(self) -> Decoder[Any]: ...

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def publish(self, channel: int, value: bytes) -> None: ...

    @abstractmethod
    def subscribe(self, channel: int | None, start: str = "") -> None: ...

    @abstractmethod
    def unsubscribe(self, channel: int | None) -> None: ...

    @abstractmethod
    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None: ...

    @abstractmethod
    def answered(self, packet: Any) -> None: ...

    def read(self) -> None:
        """Read some bytes and process the packets they complete."""
        self.decoder.feed(self.link.read())
        for packet in self.decoder:
            assert not isinstance(packet, Rejected), packet
            delivered = self.delivery(packet)
            if delivered is None:
                self.answered(packet)
            else:
                self.received.append(delivered)

    def _wrote(self, data: bytes) -> None:
        self.written.feed(data)
        for packet in self.written:
            delivered = self.delivery(packet)
            if delivered is not None:
                self.deliveries.append(delivered)
                self.on_delivery(*delivered)

    @staticmethod
    def topic(channel: int | None) -> str:
        return "channel/+" if channel is None else f"channel/{channel}"


class HeraldClient(SimulatedClient):
    protocol = HERALD
    wildcards = False
    replays = False
    resumes = True

    def new_decoder(self) -> Decoder[Any]:
        self.acks = 0
        return herald.Decoder(order=self.order)

    def send(self, packet: herald.Packet) -> None:
        self.link.send(herald.encode(packet, order=self.order))

    def connect(self) -> None:
        self.send(herald.HandshakePub(1, f"c{self.number}"))
        self.send(herald.HandshakeSub(b"", f"c{self.number}"))

    def publish(self, channel: int, value: bytes) -> None:
        self.send(herald.Publish(channel, value))

    def subscribe(self, channel: int | None, start: str = "") -> None:
        assert not start, "herald has no start positions"
        if channel is not None:
            self.send(herald.Subscribe(channel))

    def unsubscribe(self, channel: int | None) -> None:
        if channel is not None:
            self.send(herald.Unsubscribe(channel))

    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None:
        if isinstance(packet, herald.Message):
            return self.topic(packet.channel), packet.message
        return None

    def answered(self, packet: herald.Packet) -> None:
        match packet:
            case herald.HandshakeAck(_, None):
                self.acks += 1
                self.ready = self.acks == 2
            case herald.Error() if self.lost_values:
                pass  # the error does not name the message
            case _:
                raise AssertionError(packet)


class Rheos1Client(SimulatedClient):
    protocol = RHEOS1

    def new_decoder(self) -> Decoder[Any]:
        self.requests: deque[bytes] = deque()
        return rheos1.ClientDecoder()

    def send(self, opcode: OpCode, topic: str, value: bytes = b"") -> None:
        identifier = self.number.to_bytes(16, "big")
        self.link.send(rheos1.encode(rheos1.Request(identifier, opcode, topic.encode(), value)))

    def connect(self) -> None:
        self.ready = True

    def publish(self, channel: int, value: bytes) -> None:
        self.send(OpCode.PUBLISH, self.topic(channel), value)
        self.requests.append(value)
        self.published += 1

    def subscribe(self, channel: int | None, start: str = "") -> None:
        self.subscribed.add(channel)
        self.send(OpCode.SUBSCRIBE, self.topic(channel) + start)
        self.requests.append(b"")
        self.published += 1  # it is acknowledged as a publish is

    def unsubscribe(self, channel: int | None) -> None:
        """Rheos has no UNSUBSCRIBE."""

    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None:
        return (None, packet.payload) if isinstance(packet, rheos1.Response) else None

    def answered(self, packet: Any) -> None:
        lost = self.requests.popleft() in self.lost_values
        assert packet.code is (AckCode.FAILED if lost else AckCode.SUCCESS)
        self.acknowledged += 1


class Rheos2Client(Rheos1Client):
    protocol = RHEOS2

    def new_decoder(self) -> Decoder[Any]:
        self.requests = deque()
        return rheos2.ClientDecoder()

    def send(self, opcode: OpCode, topic: str, value: bytes = b"") -> None:
        identifier = self.number.to_bytes(16, "big")
        self.link.send(rheos2.encode(rheos2.Event(identifier, opcode, topic.encode(), value)))

    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None:
        if isinstance(packet, rheos2.Event):
            return topic_name_from_binary(packet.name), packet.data
        return None


class FleximqClient(SimulatedClient):
    protocol = FLEXIMQ

    def new_decoder(self) -> Decoder[Any]:
        self.client_id = 0
        return fleximq.ClientDecoder()

    def send(self, kind: fleximq.MessageType, header: fleximq.Header, payload: bytes = b"") -> None:
        message = fleximq.Message(kind, self.client_id, header, payload)
        self.link.send(fleximq.encode(message))

    def connect(self) -> None:
        self.send(fleximq.MessageType.JOIN, fleximq.Header())

    def publish(self, channel: int, value: bytes) -> None:
        header = fleximq.Header(topic=self.topic(channel))
        self.send(fleximq.MessageType.PUB, header, fleximq.wrap_value(value))

    def subscribe(self, channel: int | None, start: str = "") -> None:
        self.subscribed.add(channel)
        self.send(fleximq.MessageType.SUB, fleximq.Header(topic=self.topic(channel) + start))

    def unsubscribe(self, channel: int | None) -> None:
        if channel in self.subscribed:
            self.subscribed.discard(channel)
            self.send(fleximq.MessageType.UNSUB, fleximq.Header(topic=self.topic(channel)))

    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None:
        if packet.type is fleximq.MessageType.PUB:
            return packet.header.topic, fleximq.raw_value(packet.payload)
        return None

    def answered(self, packet: fleximq.Message) -> None:
        if packet.type is fleximq.MessageType.REP and not self.ready:
            assert packet.header.status == 200
            self.client_id = packet.client_id
            self.ready = True
        elif packet.type is fleximq.MessageType.PING:
            keepalive = packet.header.keepalive
            assert keepalive is not None
            answer = fleximq.KeepAlive(keepalive.timestamp)
            self.send(fleximq.MessageType.PONG, fleximq.Header(keepalive=answer))
        elif packet.type is fleximq.MessageType.NOTIF and self.lost_values:
            assert packet.header.status == fleximq.StatusCode.SERVICE_UNAVAILABLE
        else:
            raise AssertionError(packet)


class LamamqClient(SimulatedClient):
    protocol = LAMAMQ

    def new_decoder(self) -> Decoder[Any]:
        self.next_id = 1
        self.values: dict[int, bytes] = {}
        return lamamq.ClientDecoder(order=self.order)

    def request(self, packet: Any) -> None:
        for decoder in (self.decoder, self.written):
            decoder.awaited.add(packet.message_id)  # type: ignore[attr-defined]
        self.link.send(lamamq.encode(packet, order=self.order))
        self.next_id += 1
        self.published += 1

    def connect(self) -> None:
        self.link.send(lamamq.encode(lamamq.Authentication(f"c{self.number}"), order=self.order))

    def publish(self, channel: int, value: bytes) -> None:
        message = lamamq.Message(
            1, self.topic(channel), (("k", b"v"),), lamamq.PayloadType.BUFFER, value
        )
        self.values[self.next_id] = value
        self.request(lamamq.Push(self.next_id, message))

    def subscribe(self, channel: int | None, start: str = "") -> None:
        self.subscribed.add(channel)
        self.request(lamamq.Subscribe(self.next_id, self.topic(channel) + start))

    def unsubscribe(self, channel: int | None) -> None:
        if channel in self.subscribed:
            self.subscribed.discard(channel)
            self.request(lamamq.Unsubscribe(self.next_id, self.topic(channel)))

    def delivery(self, packet: Any) -> tuple[str | None, bytes] | None:
        if isinstance(packet, lamamq.Forward):
            return packet.message.routing_key, packet.message.payload
        return None

    def answered(self, packet: Any) -> None:
        match packet:
            case lamamq.VersionOffer():
                self.link.send(lamamq.encode(lamamq.VersionChoice(1, 0), order=self.order))
                self.ready = True
            case lamamq.Answer(identifier, error):
                lost = self.values.get(identifier) in self.lost_values
                assert (error is not None) == lost, packet
                self.acknowledged += 1
            case _:
                raise AssertionError(packet)


CLIENTS: list[type[SimulatedClient]] = [
    HeraldClient,
    Rheos1Client,
    Rheos2Client,
    FleximqClient,
    LamamqClient,
]
