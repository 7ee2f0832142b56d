"""herald cases about keep-alive and the end of a session."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    DISCONNECT,
    PING,
    PONG,
    UNAUTHORIZED,
    handshake_pub,
    handshake_sub,
    publish,
)
from penstock.conform.herald.peer import CHANNEL, OTHER, HeraldPeer, publisher, subscriber
from penstock.conform.peer import Peer, check

__all__ = ["cases"]

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("Connection Flow", "A session of two clients has these bytes")
def a_session_to_the_byte(context: CaseContext) -> None:
    receiver, sender = context.open(Peer), context.open(Peer)
    acknowledged = bytes.fromhex("feca 03 09000000 00")
    receiver.send(bytes.fromhex("feca 02 09000000  01 f0  06 636f6e662d73"))  # "conf-s"
    receiver.expect(acknowledged, 8)
    sender.send(bytes.fromhex("feca 01 08000000  f1  06 636f6e662d70"))  # "conf-p"
    sender.expect(acknowledged, 8)
    receiver.send(bytes.fromhex("feca 11 01000000 f1  feca 12 01000000 f0  feca 20 00000000"))
    receiver.expect(bytes.fromhex("feca 21 00000000"))
    sender.send(bytes.fromhex("feca 10 05000000 f0 676f6e65  feca 10 05000000 f1 32312e35"))
    receiver.expect(bytes.fromhex("feca 13 0d000000 f1"), 8, bytes.fromhex("32312e35"))
    sender.send(bytes.fromhex("feca 30 00000000  feca 10 00000000"))
    sender.expect(bytes.fromhex("feca ff 01000000 06  feca ff 01000000 07"))
    for peer in (receiver, sender):
        peer.send(bytes.fromhex("feca 04 00000000")).expect_close()


@cases.rule("PING (0x20)", "PING is answered with PONG")
def ping_is_answered(context: CaseContext) -> None:
    publisher(context).send(PING).expect(PONG)
    subscriber(context, CHANNEL).send(PING + PING).expect(PONG + PONG)


@cases.rule("PONG (0x21)", "PONG is not answered")
def pong_is_not_answered(context: CaseContext) -> None:
    publisher(context).send(PONG + PING).expect(PONG)


@cases.rule("DISCONNECT (0x04)", "DISCONNECT ends the connection")
def disconnect_ends_the_connection(context: CaseContext) -> None:
    publisher(context).send(DISCONNECT).expect_close()


@cases.rule("DISCONNECT (0x04)", "A message that was published before DISCONNECT is delivered")
def messages_before_disconnect_are_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"last") + DISCONNECT)
    receiver.message(CHANNEL, b"last")


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("DISCONNECT (0x04)", "DISCONNECT ends the connection without an answer, at any time")
def disconnect_is_not_answered(context: CaseContext) -> None:
    publisher(context).send(DISCONNECT + PING).expect_close()
    context.open(HeraldPeer).send(DISCONNECT).expect_close()


@cases.profile("DISCONNECT (0x04)", "A subscriber that half-closes keeps receiving")
def a_subscriber_that_half_closes_keeps_receiving(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    receiver.half_close().expect(PING)
    for message in (b"first", b"second"):
        sender.send(publish(CHANNEL, message)).send(PING).expect(PONG)
        receiver.message_among_pings(CHANNEL, message)


@cases.profile("DISCONNECT (0x04)", "A publisher that half-closes is closed")
def a_publisher_that_half_closes_is_closed(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"last")).half_close().expect_close()
    receiver.message(CHANNEL, b"last")


@cases.profile(
    "PING (0x20)",
    "A silent client gets PING; without an answer DISCONNECT and the end",
    requires=Setup.KEEPALIVE,
)
def a_silent_client_gets_ping(context: CaseContext) -> None:
    silent, answering = subscriber(context, CHANNEL), subscriber(context, CHANNEL)
    for _ in range(4):
        answering.expect(PING)
        answering.send(PONG)
    silent.expect(PING + PING + DISCONNECT)
    silent.expect_close()
    answering.expect(PING)


@cases.profile(
    "Session Management",
    "A client that connects again takes over; its older connection gets DISCONNECT",
)
def a_client_that_connects_again_takes_over(context: CaseContext) -> None:
    client_id = context.topic()
    sender, older, newer = (
        publisher(context),
        context.open(HeraldPeer),
        context.open(HeraldPeer),
    )
    older.join(handshake_sub(bytes((CHANNEL,)), client_id))
    newer.join(handshake_sub(b"", client_id))
    older.expect(DISCONNECT)
    older.expect_close()
    sender.send(publish(CHANNEL, b"next"))
    newer.message(CHANNEL, b"next")
    newer.settle()


@cases.profile("Session Management", "The channels of a handshake replace those of an older one")
def the_channels_of_a_handshake_replace_older_ones(context: CaseContext) -> None:
    client_id = context.topic()
    sender, older, newer = (
        publisher(context),
        context.open(HeraldPeer),
        context.open(HeraldPeer),
    )
    older.join(handshake_sub(bytes((CHANNEL,)), client_id))
    newer.join(handshake_sub(bytes((OTHER,)), client_id))
    sender.send(publish(CHANNEL, b"not this") + publish(OTHER, b"this"))
    newer.message(OTHER, b"this")
    newer.settle()


@cases.profile("DISCONNECT (0x04)", "A message before DISCONNECT arrives, and then the end comes")
def a_message_before_disconnect_arrives(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"last") + DISCONNECT).expect_close()
    receiver.message(CHANNEL, b"last")


@cases.profile("Security Considerations", "Whole frames before a cut frame count")
def whole_frames_before_a_cut_frame_count(context: CaseContext) -> None:
    receiver, other, sender = (
        subscriber(context, CHANNEL),
        publisher(context),
        publisher(context),
    )
    sender.send(publish(CHANNEL, b"whole") + publish(CHANNEL, b"cut short")[:9])
    receiver.message(CHANNEL, b"whole")
    sender.close()
    other.send(publish(CHANNEL, b"goes on"))
    receiver.message(CHANNEL, b"goes on")


@cases.profile(
    "Session Management", "A client that connects again gets what it missed", requires=Setup.HISTORY
)
def a_client_that_connects_again_gets_what_it_missed(context: CaseContext) -> None:
    client_id, sender = context.topic(), publisher(context)
    older = context.open(HeraldPeer)
    older.join(handshake_sub(bytes((CHANNEL,)), client_id))
    sender.send(publish(CHANNEL, b"before"))
    older.message(CHANNEL, b"before")
    older.close()
    sender.settle()
    sender.send(publish(CHANNEL, b"missed") + publish(OTHER, b"not this")).settle()
    newer = context.open(HeraldPeer)
    newer.join(handshake_sub(b"", client_id))
    sender.send(publish(CHANNEL, b"after"))
    found = newer.messages_up_to(b"after")
    expected = [b"missed", b"after"]
    check(found[-2:] == expected and set(found[:-2]) <= {b"before"}, str(expected), found)


@cases.profile(
    "HANDSHAKE_ACK (0x03)",
    "A client that middleware does not accept before the deadline gets UNAUTHORIZED",
    requires=Setup.SLOW_MIDDLEWARE,
)
def a_handshake_that_is_judged_too_late_is_unauthorized(context: CaseContext) -> None:
    for handshake in context.each((handshake_pub(CHANNEL), handshake_sub(bytes((CHANNEL,))))):
        context.open(HeraldPeer).refused(handshake, UNAUTHORIZED)


@cases.profile("DISCONNECT (0x04)", "A server that stops sends DISCONNECT", requires=Setup.RESTART)
def a_server_that_stops_sends_disconnect(context: CaseContext) -> None:
    peers = [publisher(context), subscriber(context, CHANNEL)]
    context.restart()
    for peer in peers:
        peer.expect(DISCONNECT)
        peer.expect_close()


@cases.profile(
    "Session Management", "A restart assigns no session id again", requires=Setup.RESTART
)
def a_restart_assigns_no_session_id_again(context: CaseContext) -> None:
    found: set[bytes] = set()
    for run in context.each(range(1, 4)):
        for _ in range(3):
            found.add(context.open(HeraldPeer).join(handshake_pub(CHANNEL)))
        check(len(found) == 3 * run, f"{3 * run} different session ids", len(found))
        context.restart()
