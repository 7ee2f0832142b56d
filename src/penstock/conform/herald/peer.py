"""A raw herald connection, and the clients that cases begin with.

Subscribers have no client id, so that they resume no session of an earlier case.
"""

import struct
from typing import Final, Self

from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    CHANNEL_NOT_FOUND,
    PING,
    PONG,
    UNAUTHORIZED,
    frame,
    handshake_pub,
    handshake_sub,
)
from penstock.conform.peer import Peer, Skipped

__all__ = ["CHANNEL", "OTHER", "HeraldPeer", "publisher", "subscriber"]

CHANNEL: Final = 240
OTHER: Final = 241


class HeraldPeer(Peer):
    """A raw connection that reads acknowledgments and messages in its byte order."""

    order = "<"

    def join(self, handshake: bytes) -> bytes:
        """Send a handshake that succeeds; return the session id."""
        self.send(handshake)
        acknowledgment = self.expect(frame(0x03, bytes(9), order=self.order)[:7], 9)
        if acknowledgment[7] in {CHANNEL_NOT_FOUND, UNAUTHORIZED}:
            raise Skipped(
                f"the server refuses channels {CHANNEL} and {OTHER}: "
                f"HANDSHAKE_ACK with status {acknowledgment[7]}"
            )
        if acknowledgment[7]:
            raise self.failed("HANDSHAKE_ACK with status 0", f"status {acknowledgment[7]}")
        return acknowledgment[8:]

    def refused(self, handshake: bytes, status: int) -> None:
        """Send a handshake; expect this status, session id 0 and the end of the connection."""
        self.send(handshake).expect(frame(0x03, bytes([status]) + bytes(8)))
        self.expect_close()

    def message(self, channel: int, message: bytes) -> int:
        """Expect this MESSAGE; return its timestamp."""
        size = struct.pack(f"{self.order}HBI", 0xCAFE, 0x13, 9 + len(message))
        found = self.expect(size + bytes((channel,)), 8, message)
        timestamp: int = struct.unpack_from(f"{self.order}Q", found, 8)[0]
        return timestamp

    def message_among_pings(self, channel: int, message: bytes) -> None:
        """Expect this MESSAGE; PINGs may come before it."""
        while (head := self.take(len(PING), "a frame")) == PING:
            pass
        expected = frame(0x13, bytes(9) + message)[:7]
        if head != expected:
            raise self.failed(expected.hex(" "), head.hex(" "))
        self.expect(bytes((channel,)), 8, message)

    def messages_up_to(self, last: bytes) -> list[bytes]:
        """Return the next messages, the last of which is this."""
        found: list[bytes] = []
        while not found or found[-1] != last:
            head = self.expect(frame(0x13, order=self.order)[:3], 4)
            (size,) = struct.unpack_from(f"{self.order}I", head, 3)
            found.append(self.take(size, "the body of a MESSAGE")[9:])
        return found

    def settle(self) -> Self:
        """Wait until the server has processed everything sent; nothing else may arrive."""
        self.send(PING).expect(PONG)
        return self


def publisher(context: CaseContext, channel: int = CHANNEL, *, order: str = "<") -> HeraldPeer:
    """Return a connection that publishes."""
    peer = context.open(HeraldPeer)
    peer.order = order
    peer.join(handshake_pub(channel, b"conform-p", order=order))
    return peer


def subscriber(context: CaseContext, *channels: int, order: str = "<") -> HeraldPeer:
    """Return a connection that subscribes."""
    peer = context.open(HeraldPeer)
    peer.order = order
    peer.join(handshake_sub(bytes(channels), b"", order=order))
    return peer
