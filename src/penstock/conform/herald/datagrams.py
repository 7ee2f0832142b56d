"""herald cases of Penstock's profile about UDP.

The broker may send PING to any address, to see that it receives: the peer answers each.
"""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    DISCONNECT,
    INVALID_HANDSHAKE,
    MALFORMED_MESSAGE,
    PING,
    PONG,
    UNAUTHORIZED,
    error,
    frame,
    handshake_pub,
)
from penstock.conform.herald.peer import CHANNEL, OTHER, HeraldPeer
from penstock.conform.peer import check, equal

__all__ = ["cases"]

NAME: Final = b"conform-" + b"x" * 52
"""Long, because the broker sends no more bytes to an unknown address than it got from it."""
CHARACTERISTICS: Final = "Protocol Characteristics"

cases: Final[CaseCollector[[]]] = CaseCollector()


class DatagramPeer(HeraldPeer):
    """A raw herald client over UDP."""

    def frame(self) -> bytes:
        """Return the next frame that is no PING, and answer those."""
        while True:
            head = self.take(7, "a frame")
            (size,) = struct.unpack_from("<I", head, 3)
            found = head + self.take(min(size, 65_507), "the body of a frame")
            if found != PING:
                return found
            self.send(PONG)

    def session(self, handshake: bytes) -> bytes:
        """Send a handshake that succeeds; return the session id."""
        found = self.send(handshake).frame()
        expected = frame(0x03, bytes(9))[:8]
        check(found[:8] == expected, "HANDSHAKE_ACK with status 0", found)
        return found[8:]

    def answered(self) -> None:
        """Expect that PING is answered, and nothing else comes first."""
        equal(self.send(PING).frame(), PONG)


@cases.profile(CHARACTERISTICS, "Another handshake replaces the session", requires=Setup.UDP)
def a_handshake_from_a_known_address_replaces_the_session(context: CaseContext) -> None:
    peer = context.open_datagrams(DatagramPeer)
    before = peer.session(handshake_pub(CHANNEL, NAME + b"1"))
    after = peer.session(handshake_pub(OTHER, NAME + b"2"))
    check(before != after, "another session id", after)
    peer.answered()


@cases.profile(CHARACTERISTICS, "A repeated handshake gets the same answer", requires=Setup.UDP)
def a_repeated_handshake_gets_the_same_answer(context: CaseContext) -> None:
    peer = context.open_datagrams(DatagramPeer)
    handshake = handshake_pub(CHANNEL, NAME)
    equal(peer.session(handshake), peer.session(handshake), "session id")
    peer.answered()


@cases.profile(
    CHARACTERISTICS, "A datagram that cannot be read gets MALFORMED_MESSAGE", requires=Setup.UDP
)
def an_unreadable_datagram_ends_no_session(context: CaseContext) -> None:
    peer = context.open_datagrams(DatagramPeer)
    session = peer.session(handshake_pub(CHANNEL, NAME))
    for data in context.each((b"not herald", b"\xca\xfe" + PING[2:], b"\xfe", PING[:5])):
        equal(peer.send(data).frame(), error(MALFORMED_MESSAGE))
        peer.answered()
    equal(peer.send(frame(0x01, b"\x07\x09short")).frame(), error(INVALID_HANDSHAKE))
    equal(peer.session(handshake_pub(CHANNEL, NAME)), session, "session id")


@cases.profile(
    CHARACTERISTICS,
    "A handshake that is repeated while middleware judges it gets one answer",
    requires=Setup.SLOW_MIDDLEWARE,
)
def a_handshake_repeated_while_middleware_judges_gets_one_answer(context: CaseContext) -> None:
    peer = context.open_datagrams(DatagramPeer)
    handshake = handshake_pub(CHANNEL, NAME)
    peer.send(handshake).send(handshake)
    equal(peer.send(handshake).frame(), frame(0x03, bytes([UNAUTHORIZED]) + bytes(8)))
    equal(peer.frame(), DISCONNECT)  # datagrams have no other end of a connection
    peer.expect_silence()
