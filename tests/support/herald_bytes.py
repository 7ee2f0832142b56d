"""herald frames by hand: an encoder that shares nothing with the project's."""

import struct

from tests.support.live import LiveBroker, Peer


def frame(opcode: int, body: bytes = b"", *, order: str = "<") -> bytes:
    return struct.pack(f"{order}HBI", 0xCAFE, opcode, len(body)) + body


def handshake_pub(channel: int = 7, client_id: bytes = b"p", *, order: str = "<") -> bytes:
    return frame(0x01, bytes([channel, len(client_id)]) + client_id, order=order)


def handshake_sub(channels: bytes = b"\x07", client_id: bytes = b"s", *, order: str = "<") -> bytes:
    body = bytes([len(channels)]) + channels + bytes([len(client_id)]) + client_id
    return frame(0x02, body, order=order)


def publish(channel: int, message: bytes, *, order: str = "<") -> bytes:
    return frame(0x10, bytes([channel]) + message, order=order)


def subscribe(channel: int, *, order: str = "<") -> bytes:
    return frame(0x11, bytes([channel]), order=order)


def unsubscribe(channel: int, *, order: str = "<") -> bytes:
    return frame(0x12, bytes([channel]), order=order)


def error(code: int, *, order: str = "<") -> bytes:
    return frame(0xFF, bytes([code]), order=order)


PING, PONG, DISCONNECT = frame(0x20), frame(0x21), frame(0x04)


class HeraldPeer(Peer):
    """A raw herald connection."""

    def __init__(self, broker: LiveBroker, *, order: str = "<") -> None:
        super().__init__(broker.address)
        self.order = order
        self.session_id = 0

    def join(self, handshake: bytes) -> "HeraldPeer":
        """Send a handshake and expect success."""
        self.send(handshake)
        ack = self.receive(16)
        assert ack[:8] == struct.pack(f"{self.order}HBIB", 0xCAFE, 0x03, 9, 0), ack.hex(" ")
        (self.session_id,) = struct.unpack(f"{self.order}Q", ack[8:])
        return self

    def message(self) -> tuple[int, int, bytes]:
        """The next frame is a MESSAGE: its channel, timestamp and message."""
        magic, opcode, length = struct.unpack(f"{self.order}HBI", self.receive(7))
        assert (magic, opcode) == (0xCAFE, 0x13)
        body = self.receive(length)
        channel, timestamp = struct.unpack(f"{self.order}BQ", body[:9])
        return channel, timestamp, body[9:]

    def settle(self) -> "HeraldPeer":
        """Everything sent so far has been acted on."""
        self.send(frame(0x20, order=self.order))
        self.expect(frame(0x21, order=self.order))
        return self


def publisher(broker: LiveBroker, channel: int = 7, *, order: str = "<") -> HeraldPeer:
    return HeraldPeer(broker, order=order).join(handshake_pub(channel, order=order))  # type: ignore[return-value]


def subscriber(broker: LiveBroker, channels: bytes = b"\x07", *, order: str = "<") -> HeraldPeer:
    return HeraldPeer(broker, order=order).join(handshake_sub(channels, order=order))  # type: ignore[return-value]
