"""herald cases about handshakes."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    CHANNEL_NOT_FOUND,
    INVALID_HANDSHAKE,
    PING,
    PONG,
    RATE_LIMIT_EXCEEDED,
    UNAUTHORIZED,
    error,
    frame,
    handshake_pub,
    handshake_sub,
    publish,
    subscribe,
    unsubscribe,
)
from penstock.conform.herald.peer import CHANNEL, OTHER, HeraldPeer, publisher, subscriber
from penstock.conform.peer import check, equal

__all__ = ["cases"]

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("HANDSHAKE_PUB (0x01)", "A publisher's handshake is acknowledged with status 0")
def a_publisher_is_acknowledged(context: CaseContext) -> None:
    publisher(context)


@cases.rule("HANDSHAKE_SUB (0x02)", "A subscriber's handshake is acknowledged with status 0")
def a_subscriber_is_acknowledged(context: CaseContext) -> None:
    subscriber(context, CHANNEL, OTHER)


@cases.rule("HANDSHAKE_SUB (0x02)", "A subscriber may start with no channels")
def a_subscriber_may_have_no_channels(context: CaseContext) -> None:
    subscriber(context)


@cases.rule("HANDSHAKE_PUB (0x01)", "A client id may have 255 bytes")
def a_client_id_may_have_255_bytes(context: CaseContext) -> None:
    context.open(HeraldPeer).join(handshake_pub(CHANNEL, client_id=b"c" * 255))


@cases.rule(
    "HANDSHAKE_SUB (0x02)", "A subscriber may have 255 channels and a client id of 255 bytes"
)
def a_subscriber_may_have_255_channels(context: CaseContext) -> None:
    receiver, sender = context.open(HeraldPeer), publisher(context)
    receiver.join(handshake_sub(bytes(range(1, 256)), context.topic().ljust(255, b"c")))
    sender.send(publish(1, b"first") + publish(255, b"last"))
    receiver.message(1, b"first")
    receiver.message(255, b"last")


@cases.rule("Session Management", "Session ids are unique")
def session_ids_are_unique(context: CaseContext) -> None:
    peers = [context.open(HeraldPeer) for _ in range(3)]
    found = {
        peer.join(handshake_pub(CHANNEL, client_id=b"conform-%d" % number))
        for number, peer in enumerate(peers)
    }
    if len(found) < 3:
        raise peers[-1].failed("3 session ids that differ", f"{len(found)} different ones")


@cases.rule("Partial Frame Handling", "A handshake may arrive byte by byte")
def a_handshake_arrives_byte_by_byte(context: CaseContext) -> None:
    peer = context.open(HeraldPeer)
    peer.send_each(handshake_pub(CHANNEL))
    peer.expect(frame(0x03, bytes(9))[:7], b"\x00", 8)


@cases.profile("Session Management", "Session ids are not 0")
def session_ids_are_not_0(context: CaseContext) -> None:
    found = context.open(HeraldPeer).join(handshake_pub(CHANNEL))
    check(any(found), "a session id other than 0", found)


@cases.profile("Byte Order", "Clients are answered in their own byte order")
def clients_are_answered_in_their_byte_order(context: CaseContext) -> None:
    big, little = subscriber(context, CHANNEL, order=">"), subscriber(context, CHANNEL)
    publisher(context, order=">").send(publish(CHANNEL, b"x", order=">"))
    for receiver in (big, little):
        receiver.message(CHANNEL, b"x")


@cases.profile("Byte Order", "PONG and ERROR are in the byte order of the client too")
def errors_are_in_the_byte_order_of_the_client(context: CaseContext) -> None:
    peer = publisher(context, order=">")
    peer.send(bytes.fromhex("cafe 30 00000000  cafe 20 00000000"))
    peer.expect(bytes.fromhex("cafe ff 00000001 06  cafe 21 00000000"))


@cases.profile("Byte Order", "A frame in the other byte order closes without an answer")
def a_frame_in_the_other_byte_order_closes(context: CaseContext) -> None:
    publisher(context, order=">").send(PING).expect_close()
    publisher(context).send(frame(0x20, order=">")).expect_close()


@cases.profile(
    "Connection Flow", "A frame before the handshake gets INVALID_HANDSHAKE; a handshake may follow"
)
def a_frame_before_the_handshake_is_refused(context: CaseContext) -> None:
    for first in context.each(
        (
            publish(CHANNEL, b"x"),
            subscribe(CHANNEL),
            unsubscribe(CHANNEL),
            PING,
            PONG,
            frame(0x03, bytes(9)),
            error(1),
        )
    ):
        peer = context.open(HeraldPeer)
        peer.send(first).expect(error(INVALID_HANDSHAKE))
        peer.join(handshake_pub(CHANNEL))


@cases.profile("Error Codes: INVALID_HANDSHAKE", "A malformed handshake gets INVALID_HANDSHAKE")
def a_malformed_handshake_gets_its_error(context: CaseContext) -> None:
    for handshake in context.each(
        (
            frame(0x01),
            frame(0x01, b"\x07"),
            frame(0x01, b"\x07\x05ab"),
            frame(0x01, b"\x07\x01\xff"),
            frame(0x02),
            frame(0x02, b"\x02\x01"),
            frame(0x02, b"\x00\x00\x00"),
        )
    ):
        context.open(HeraldPeer).send(handshake).expect(error(INVALID_HANDSHAKE))


@cases.profile("HANDSHAKE_SUB (0x02)", "A channel that a handshake names twice counts once")
def a_channel_named_twice_counts_once(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL, CHANNEL), publisher(context)
    receiver.send(subscribe(CHANNEL)).settle()
    sender.send(publish(CHANNEL, b"once")).settle()
    receiver.message(CHANNEL, b"once")
    receiver.settle()


@cases.profile("Connection Flow", "A second handshake of the same role gets INVALID_HANDSHAKE")
def a_second_handshake_is_refused(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(handshake_pub(CHANNEL)).expect(error(INVALID_HANDSHAKE))
    peer.settle()


@cases.profile("Connection Flow", "A connection may have both roles and receives its own messages")
def a_connection_may_have_both_roles(context: CaseContext) -> None:
    peer = context.open(HeraldPeer)
    session_id = peer.join(handshake_pub(CHANNEL))
    equal(peer.join(handshake_sub(bytes((OTHER,)), b"")), session_id, "the same session id,")
    peer.send(publish(OTHER, b"echo"))
    peer.message(OTHER, b"echo")


# --- Refused clients ------------------------------------------------------------------------------


@cases.profile(
    "Error Codes: CHANNEL_NOT_FOUND",
    "A channel that the server does not list is not found",
    requires=Setup.CHANNELS,
)
def a_channel_that_is_not_listed_is_not_found(context: CaseContext) -> None:
    for handshake in context.each((handshake_pub(9), handshake_sub(b"\x01\x09", b""))):
        context.open(HeraldPeer).refused(handshake, CHANNEL_NOT_FOUND)
    peer = publisher(context, 2)
    peer.send(publish(9, b"x") + PING).expect(error(CHANNEL_NOT_FOUND) + PONG)
    peer = subscriber(context)
    peer.send(subscribe(9) + unsubscribe(9) + PING).expect(error(CHANNEL_NOT_FOUND) * 2 + PONG)


@cases.profile(
    "Error Codes: UNAUTHORIZED", "A forbidden channel is unauthorized", requires=Setup.CHANNELS
)
def a_forbidden_channel_is_unauthorized(context: CaseContext) -> None:
    for handshake in context.each((handshake_pub(1), handshake_sub(b"\x02", b""))):
        context.open(HeraldPeer).refused(handshake, UNAUTHORIZED)
    receiver, peer = subscriber(context, 1, 3), publisher(context, 2)
    peer.send(publish(3, b"a") + publish(1, b"no") + publish(3, b"b") + PING)
    peer.expect(error(UNAUTHORIZED) + PONG)
    for message in (b"a", b"b"):
        receiver.message(3, message)
    receiver.send(subscribe(2) + PING).expect(error(UNAUTHORIZED) + PONG)


@cases.profile(
    "Error Codes: UNAUTHORIZED",
    "A server that requires credentials refuses the handshake",
    requires=Setup.CREDENTIALS,
)
def without_credentials_a_handshake_is_unauthorized(context: CaseContext) -> None:
    context.open(HeraldPeer).refused(handshake_pub(CHANNEL), UNAUTHORIZED)


@cases.profile(
    "Error Codes: RATE_LIMIT_EXCEEDED",
    "A server that is full refuses the handshake",
    requires=Setup.ONE_SESSION,
)
def a_full_server_refuses(context: CaseContext) -> None:
    first = publisher(context)
    context.open(HeraldPeer).refused(handshake_pub(CHANNEL), RATE_LIMIT_EXCEEDED)
    first.settle()


@cases.profile(
    "Error Codes: RATE_LIMIT_EXCEEDED",
    "A subscription above the limit gets an error and the others stay",
    requires=Setup.SUBSCRIPTIONS,
)
def a_subscription_above_the_limit_is_refused(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    receiver.send(subscribe(OTHER) + subscribe(0) + subscribe(CHANNEL) + PING)
    receiver.expect(error(RATE_LIMIT_EXCEEDED) + PONG)
    sender.send(publish(0, b"not this") + publish(OTHER, b"a") + publish(CHANNEL, b"b"))
    receiver.message(OTHER, b"a")
    receiver.message(CHANNEL, b"b")


@cases.profile(
    "Connection Flow",
    "Without echo a connection with both roles does not receive its own messages",
    requires=Setup.NO_ECHO,
)
def without_echo_a_publisher_does_not_receive(context: CaseContext) -> None:
    peer, other = publisher(context), publisher(context)
    peer.join(handshake_sub(bytes((CHANNEL,)), b""))
    peer.send(publish(CHANNEL, b"mine")).settle()
    other.send(publish(CHANNEL, b"other"))
    peer.message(CHANNEL, b"other")


@cases.profile(
    "Connection Flow",
    "A connection without a handshake in time is closed",
    requires=Setup.SHORT_HANDSHAKE,
)
def a_late_handshake_closes(context: CaseContext) -> None:
    joined = publisher(context)
    for first in context.each((b"", b"\xfe", PING)):
        peer = context.open(HeraldPeer).send(first)
        if first == PING:
            peer.expect(error(INVALID_HANDSHAKE))
        peer.expect_close()
    joined.expect_silence(seconds=0.5)
    joined.settle()
