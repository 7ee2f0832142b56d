"""Load in herald: 256 channels, no acknowledgments."""

import socket
from collections.abc import Callable

from penstock.cli.bench.wire import TOPIC, Wire, not_let_in
from penstock.client.topics import channel_of
from penstock.wire import herald

__all__ = ["HeraldWire"]


class HeraldWire(Wire):
    """256 channels, no acknowledgments."""

    name = "herald"

    def __init__(self, topic: str = TOPIC) -> None:
        channel_of(topic)  # raises NotAChannel
        super().__init__(topic)

    @property
    def channel(self) -> int:
        """The number of the channel."""
        return int(self.topic.removeprefix("channel/"))

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        channel = self.channel
        self._join(peer, herald.HandshakePub(channel, "p"))
        return lambda value: herald.encode(herald.Publish(channel, value))

    def open_subscriber(
        self,
        peer: socket.socket,
        value: bytes,
        *,
        start: str = "",  # noqa: ARG002
    ) -> int:
        """See Wire."""
        self._join(peer, herald.HandshakeSub(bytes([self.channel]), ""))
        return 16 + len(value)

    def _join(
        self, peer: socket.socket, handshake: herald.HandshakePub | herald.HandshakeSub
    ) -> None:
        answer = self.shake(peer, herald.encode(handshake), 16)
        head = herald.encode(herald.HandshakeAck(0))[:7]
        if answer[:7] != head:
            raise self.not_spoken()
        if answer[7] == herald.ErrorCode.UNAUTHORIZED:
            raise not_let_in(f", or not to {self.topic}")
        if answer[7]:
            raise self.refused(f"a handshake with status {answer[7]}")
