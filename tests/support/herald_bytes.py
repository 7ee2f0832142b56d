"""herald over a socket, with the encoder of the conformance cases."""

import struct

from penstock.conform.herald.encoding import *  # noqa: F403
from penstock.conform.herald.encoding import frame, handshake_pub, handshake_sub
from tests.support.live import LiveBroker, Peer


class HeraldPeer(Peer):
    """A raw herald connection."""

    def __init__(
        self,
        broker: LiveBroker | None = None,
        *,
        address: tuple[str, int] = ("", 0),
        order: str = "<",
    ) -> None:
        super().__init__(address if broker is None else broker.address)
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
    return HeraldPeer(broker, order=order).join(handshake_sub(channels, b"", order=order))  # type: ignore[return-value]
