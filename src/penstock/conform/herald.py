"""Conformance cases of herald. The bytes are made here, from the specification.

Cases use the channels from 240 up; nobody else should publish on them meanwhile.
"""

import struct
from typing import Final

from penstock.conform.case import Book, Case
from penstock.conform.peer import Peer, Skipped
from penstock.conform.stage import Stage

__all__ = ["CASES", "publisher"]

INVALID_HANDSHAKE, CHANNEL_NOT_FOUND, MESSAGE_TOO_LARGE = 1, 2, 3
INVALID_OPCODE, MALFORMED_MESSAGE, UNAUTHORIZED = 6, 7, 8
PAYLOAD_BYTES_MAX: Final = 1_048_576
CHANNEL: Final = 240
OTHER: Final = 241


def frame(opcode: int, body: bytes = b"") -> bytes:
    """Return a frame in the order that the specification has, little-endian."""
    return struct.pack("<HBI", 0xCAFE, opcode, len(body)) + body


def handshake_pub(channel: int = CHANNEL, client_id: bytes = b"conform-p") -> bytes:
    """Return a publisher's handshake."""
    return frame(0x01, bytes((channel, len(client_id))) + client_id)


def handshake_sub(*channels: int, client_id: bytes = b"") -> bytes:
    """Return a subscriber's handshake."""
    body = bytes((len(channels), *channels, len(client_id))) + client_id
    return frame(0x02, body)


def publish(channel: int, message: bytes) -> bytes:
    """Return a PUBLISH."""
    return frame(0x10, bytes((channel,)) + message)


def error(code: int) -> bytes:
    """Return an ERROR."""
    return frame(0xFF, bytes((code,)))


DISCONNECT: Final = frame(0x04)
PING: Final = frame(0x20)
PONG: Final = frame(0x21)


class HeraldPeer(Peer):
    """A raw connection that reads acknowledgments and messages."""

    def join(self, handshake: bytes) -> bytes:
        """Send a handshake that succeeds; return the session id."""
        self.send(handshake)
        acknowledgment = self.expect(frame(0x03, bytes(9))[:7], 9)
        if acknowledgment[7] in {CHANNEL_NOT_FOUND, UNAUTHORIZED}:
            raise Skipped(
                f"the server refuses channels {CHANNEL} and {OTHER}: "
                f"HANDSHAKE_ACK with status {acknowledgment[7]}"
            )
        if acknowledgment[7]:
            raise self.failed("HANDSHAKE_ACK with status 0", f"status {acknowledgment[7]}")
        return acknowledgment[8:]

    def message(self, channel: int, message: bytes) -> int:
        """Expect this MESSAGE; return its timestamp."""
        head = struct.pack("<HBI", 0xCAFE, 0x13, 9 + len(message)) + bytes((channel,))
        found = self.expect(head, 8, message)
        return int.from_bytes(found[8:16], "little")

    def settle(self) -> None:
        """Wait until all that was sent before was acted on; nothing else may come."""
        self.send(PING).expect(PONG)


def publisher(stage: Stage) -> HeraldPeer:
    """Return a connection that publishes."""
    peer = stage.open(HeraldPeer)
    peer.join(handshake_pub())
    return peer


def subscriber(stage: Stage, *channels: int) -> HeraldPeer:
    """Return a connection that subscribes."""
    peer = stage.open(HeraldPeer)
    peer.join(handshake_sub(*channels))
    return peer


HERALD: Final[Book[[]]] = Book()

# --- Handshakes -----------------------------------------------------------------------------------


@HERALD.case("HANDSHAKE_PUB (0x01)", "A publisher's handshake is acknowledged with status 0")
def a_publisher_is_acknowledged(stage: Stage) -> None:
    publisher(stage)


@HERALD.case("HANDSHAKE_SUB (0x02)", "A subscriber's handshake is acknowledged with status 0")
def a_subscriber_is_acknowledged(stage: Stage) -> None:
    subscriber(stage, CHANNEL, OTHER)


@HERALD.case("HANDSHAKE_SUB (0x02)", "A subscriber may start with no channels")
def a_subscriber_may_have_no_channels(stage: Stage) -> None:
    subscriber(stage)


@HERALD.case("HANDSHAKE_PUB (0x01)", "A client id may have 255 bytes")
def a_client_id_may_have_255_bytes(stage: Stage) -> None:
    stage.open(HeraldPeer).join(handshake_pub(client_id=b"c" * 255))


@HERALD.case("Session Management", "Session ids are unique")
def session_ids_are_unique(stage: Stage) -> None:
    peers = [stage.open(HeraldPeer) for _ in range(3)]
    found = {
        peer.join(handshake_pub(client_id=b"conform-%d" % number))
        for number, peer in enumerate(peers)
    }
    if len(found) < 3:
        raise peers[-1].failed("3 session ids that differ", f"{len(found)} different ones")


@HERALD.case("Partial Frame Handling", "A handshake may arrive byte by byte")
def a_handshake_arrives_byte_by_byte(stage: Stage) -> None:
    peer = stage.open(HeraldPeer)
    peer.send_each(handshake_pub())
    peer.expect(frame(0x03, bytes(9))[:7], b"\x00", 8)


# --- Publishing and subscribing -------------------------------------------------------------------


@HERALD.case("MESSAGE (0x13)", "A subscriber of a channel receives what is published to it")
def a_message_is_delivered(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    sender.send(publish(CHANNEL, b"21.5"))
    receiver.message(CHANNEL, b"21.5")


@HERALD.case("MESSAGE (0x13)", "An empty message is delivered")
def an_empty_message_is_delivered(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    sender.send(publish(CHANNEL, b""))
    receiver.message(CHANNEL, b"")


@HERALD.case("MESSAGE (0x13)", "A message may hold any bytes")
def any_bytes_are_delivered(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    message = bytes(range(256)) + b"\xfe\xca\x13" * 20
    sender.send(publish(CHANNEL, message))
    receiver.message(CHANNEL, message)


@HERALD.case("Protocol Characteristics", "A message of 1,000,000 bytes is delivered")
def a_large_message_is_delivered(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    message = bytes(range(250)) * 4000
    sender.send(publish(CHANNEL, message))
    receiver.message(CHANNEL, message)


@HERALD.case("MESSAGE (0x13)", "Timestamps are the broker's, and do not go back")
def timestamps_do_not_go_back(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    sender.send(publish(CHANNEL, b"1") + publish(CHANNEL, b"2"))
    first, second = receiver.message(CHANNEL, b"1"), receiver.message(CHANNEL, b"2")
    if not 0 < first <= second:
        raise receiver.failed("two timestamps in order, above 0", f"{first} and {second}")


@HERALD.case("Channel Management", "A subscriber receives nothing of other channels")
def other_channels_are_not_delivered(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    sender.send(publish(OTHER, b"not this") + publish(CHANNEL, b"this"))
    receiver.message(CHANNEL, b"this")


@HERALD.case("Channel Management", "The channels of the handshake are all subscribed to")
def all_channels_of_the_handshake_count(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL, OTHER), publisher(stage)
    sender.send(publish(OTHER, b"a") + publish(CHANNEL, b"b"))
    receiver.message(OTHER, b"a")
    receiver.message(CHANNEL, b"b")


@HERALD.case("SUBSCRIBE (0x11)", "SUBSCRIBE adds a channel")
def subscribe_adds_a_channel(stage: Stage) -> None:
    receiver, sender = subscriber(stage), publisher(stage)
    receiver.send(frame(0x11, bytes((CHANNEL,)))).settle()
    sender.send(publish(CHANNEL, b"added"))
    receiver.message(CHANNEL, b"added")


@HERALD.case("UNSUBSCRIBE (0x12)", "UNSUBSCRIBE takes a channel away")
def unsubscribe_takes_a_channel_away(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL, OTHER), publisher(stage)
    receiver.send(frame(0x12, bytes((CHANNEL,)))).settle()
    sender.send(publish(CHANNEL, b"gone") + publish(OTHER, b"here"))
    receiver.message(OTHER, b"here")


@HERALD.case("Overview", "Every subscriber of a channel receives a message")
def all_subscribers_receive(stage: Stage) -> None:
    receivers, sender = [subscriber(stage, CHANNEL) for _ in range(3)], publisher(stage)
    sender.send(publish(CHANNEL, b"all"))
    for receiver in receivers:
        receiver.message(CHANNEL, b"all")


@HERALD.case("Partial Frame Handling", "Many frames in one write are all acted on, in order")
def many_frames_in_one_write(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    messages = [struct.pack("<I", number) for number in range(100)]
    sender.send(b"".join(publish(CHANNEL, message) for message in messages))
    for message in messages:
        receiver.message(CHANNEL, message)


@HERALD.case("Partial Frame Handling", "A frame that is cut is waited for")
def a_cut_frame_is_waited_for(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    whole = publish(CHANNEL, b"in two parts")
    for cut in (3, 9):
        sender.send(whole[:cut])
        receiver.expect_silence("nothing: the frame is not whole")
        sender.send(whole[cut:])
        receiver.message(CHANNEL, b"in two parts")


# --- Keep-alive and ends --------------------------------------------------------------------------


@HERALD.case("PING (0x20)", "PING is answered with PONG")
def ping_is_answered(stage: Stage) -> None:
    publisher(stage).send(PING).expect(PONG)
    subscriber(stage, CHANNEL).send(PING + PING).expect(PONG + PONG)


@HERALD.case("PONG (0x21)", "PONG is not answered")
def pong_is_not_answered(stage: Stage) -> None:
    publisher(stage).send(PONG + PING).expect(PONG)


@HERALD.case("DISCONNECT (0x04)", "DISCONNECT ends the connection")
def disconnect_ends_the_connection(stage: Stage) -> None:
    publisher(stage).send(DISCONNECT).expect_close()


@HERALD.case("DISCONNECT (0x04)", "What was published before DISCONNECT is delivered")
def what_comes_before_disconnect_counts(stage: Stage) -> None:
    receiver, sender = subscriber(stage, CHANNEL), publisher(stage)
    sender.send(publish(CHANNEL, b"last") + DISCONNECT)
    receiver.message(CHANNEL, b"last")


# --- Errors ---------------------------------------------------------------------------------------


@HERALD.case("Security Considerations", "An unknown OpCode is answered with INVALID_OPCODE")
def an_unknown_opcode_is_invalid(stage: Stage) -> None:
    publisher(stage).send(frame(0x30, b"abc")).expect(error(INVALID_OPCODE))


@HERALD.case("Validation Rules", "A frame with a wrong magic number ends the connection")
def a_wrong_magic_ends_the_connection(stage: Stage) -> None:
    peer = publisher(stage)
    peer.send(b"\xfe\xcb" + PING[2:])
    if not peer.is_closed():
        peer.expect(frame(0xFF, b"x")[:7], 1)
        peer.expect_close()


@HERALD.case("Error Codes: INVALID_HANDSHAKE", "A handshake cut inside its client id is refused")
def a_malformed_handshake_is_refused(stage: Stage) -> None:
    publisher(stage)
    peer = stage.open(HeraldPeer)
    peer.send(frame(0x01, bytes((CHANNEL, 9)) + b"short"))
    if not peer.is_closed():
        peer.expect(error(INVALID_HANDSHAKE))


@HERALD.case("Error Codes: MESSAGE_TOO_LARGE", "A length above 1 MiB is refused at once")
def a_length_above_the_maximum_is_refused(stage: Stage) -> None:
    peer = publisher(stage)
    peer.send(struct.pack("<HBI", 0xCAFE, 0x10, PAYLOAD_BYTES_MAX + 1))
    if not peer.is_closed():
        peer.expect(error(MESSAGE_TOO_LARGE))


@HERALD.case("Error Codes: MALFORMED_MESSAGE", "A PUBLISH without a channel is malformed")
def a_publish_without_a_channel_is_malformed(stage: Stage) -> None:
    publisher(stage).send(frame(0x10)).expect(error(MALFORMED_MESSAGE))


@HERALD.case("Error Codes: MALFORMED_MESSAGE", "A SUBSCRIBE with two bytes is malformed")
def a_long_subscribe_is_malformed(stage: Stage) -> None:
    subscriber(stage).send(frame(0x11, b"\xf0\xf1")).expect(error(MALFORMED_MESSAGE))


@HERALD.case("Security Considerations", "A broken client does not disturb others")
def a_broken_client_disturbs_nobody(stage: Stage) -> None:
    receiver, sender, broken = subscriber(stage, CHANNEL), publisher(stage), publisher(stage)
    broken.send(publish(CHANNEL, b"never whole")[:-2]).close()
    sender.send(publish(CHANNEL, b"goes on"))
    receiver.message(CHANNEL, b"goes on")


# --- Penstock's profile ---------------------------------------------------------------------------


@HERALD.case("Byte Order", "A big-endian client is answered in its order", profile=True)
def a_big_endian_client_is_answered(stage: Stage) -> None:
    peer = stage.open(HeraldPeer)
    peer.send(struct.pack(">HBI", 0xCAFE, 0x01, 3) + bytes((CHANNEL, 1)) + b"b")
    peer.expect(struct.pack(">HBI", 0xCAFE, 0x03, 9) + b"\x00", 8)


@HERALD.case(
    "Connection Flow", "A frame before the handshake is an INVALID_HANDSHAKE", profile=True
)
def a_frame_before_the_handshake_is_refused(stage: Stage) -> None:
    stage.open(HeraldPeer).send(PING).expect(error(INVALID_HANDSHAKE))


@HERALD.case("Error Codes", "After an error in a whole frame the session goes on", profile=True)
def an_error_does_not_close(stage: Stage) -> None:
    peer = publisher(stage)
    peer.send(frame(0x30) + frame(0x10) + PING)
    peer.expect(error(INVALID_OPCODE) + error(MALFORMED_MESSAGE) + PONG)


@HERALD.case(
    "Error Codes: MESSAGE_TOO_LARGE", "A length above 1 MiB is named and closes", profile=True
)
def a_length_above_the_maximum_closes(stage: Stage) -> None:
    peer = publisher(stage)
    peer.send(struct.pack("<HBI", 0xCAFE, 0x10, PAYLOAD_BYTES_MAX + 1))
    peer.expect(error(MESSAGE_TOO_LARGE))
    peer.expect_close()


@HERALD.case("OpCodes", "A publisher may publish on any channel", profile=True)
def a_publisher_may_use_any_channel(stage: Stage) -> None:
    receiver, sender = subscriber(stage, OTHER), publisher(stage)
    sender.send(publish(OTHER, b"elsewhere"))
    receiver.message(OTHER, b"elsewhere")


CASES: Final[tuple[Case, ...]] = HERALD.cases()
"""In the order in which they are run."""
