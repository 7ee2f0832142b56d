"""herald cases about errors."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    INVALID_HANDSHAKE,
    INVALID_OPCODE,
    MALFORMED_MESSAGE,
    MESSAGE_TOO_LARGE,
    PING,
    PONG,
    error,
    frame,
    publish,
    subscribe,
    unsubscribe,
)
from penstock.conform.herald.peer import CHANNEL, HeraldPeer, publisher, subscriber

__all__ = ["cases"]

PAYLOAD_BYTES_MAX: Final = 1_048_576
OPCODES: Final = frozenset((0x01, 0x02, 0x03, 0x04, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21, 0xFF))

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("Security Considerations", "An unknown OpCode is answered with INVALID_OPCODE")
def an_unknown_opcode_is_invalid(context: CaseContext) -> None:
    publisher(context).send(frame(0x30, b"abc")).expect(error(INVALID_OPCODE))


@cases.rule("Validation Rules", "A frame with a wrong magic number ends the connection")
def a_wrong_magic_ends_the_connection(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(b"\xfe\xcb" + PING[2:])
    if not peer.is_closed():
        peer.expect(frame(0xFF, b"x")[:7], 1)
        peer.expect_close()


@cases.rule("Error Codes: INVALID_HANDSHAKE", "A handshake cut inside its client id is refused")
def a_malformed_handshake_is_refused(context: CaseContext) -> None:
    publisher(context)
    peer = context.open(HeraldPeer)
    peer.send(frame(0x01, bytes((CHANNEL, 9)) + b"short"))
    if not peer.is_closed():
        peer.expect(error(INVALID_HANDSHAKE))


@cases.rule("Error Codes: MESSAGE_TOO_LARGE", "A length above 1 MiB is refused at once")
def a_length_above_the_maximum_is_refused(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(struct.pack("<HBI", 0xCAFE, 0x10, PAYLOAD_BYTES_MAX + 1))
    if not peer.is_closed():
        peer.expect(error(MESSAGE_TOO_LARGE))


@cases.rule("Header Fields", "A payload of 1 MiB is not above the maximum")
def a_payload_of_1_mib_is_read(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(frame(0x30, bytes(PAYLOAD_BYTES_MAX))).expect(error(INVALID_OPCODE))
    peer.settle()


@cases.rule("Error Codes: MALFORMED_MESSAGE", "A PUBLISH without a channel is malformed")
def a_publish_without_a_channel_is_malformed(context: CaseContext) -> None:
    publisher(context).send(frame(0x10)).expect(error(MALFORMED_MESSAGE))


@cases.rule("Error Codes: MALFORMED_MESSAGE", "A SUBSCRIBE with two bytes is malformed")
def a_long_subscribe_is_malformed(context: CaseContext) -> None:
    subscriber(context).send(frame(0x11, b"\xf0\xf1")).expect(error(MALFORMED_MESSAGE))


@cases.rule("Security Considerations", "A broken client does not disturb others")
def a_broken_client_disturbs_no_other(context: CaseContext) -> None:
    receiver, sender, broken = subscriber(context, CHANNEL), publisher(context), publisher(context)
    broken.send(publish(CHANNEL, b"never whole")[:-2]).close()
    sender.send(publish(CHANNEL, b"goes on"))
    receiver.message(CHANNEL, b"goes on")


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("Error Codes", "After an error in a whole frame the session goes on")
def an_error_does_not_close(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(frame(0x30) + frame(0x10) + PING)
    peer.expect(error(INVALID_OPCODE) + error(MALFORMED_MESSAGE) + PONG)


@cases.profile("Error Codes: MESSAGE_TOO_LARGE", "A length above 1 MiB is named and closes")
def a_length_above_the_maximum_closes(context: CaseContext) -> None:
    peer = publisher(context)
    peer.send(struct.pack("<HBI", 0xCAFE, 0x10, PAYLOAD_BYTES_MAX + 1))
    peer.expect(error(MESSAGE_TOO_LARGE))
    peer.expect_close()


@cases.profile("Error Codes", "Faults before the handshake get the error of their kind")
def faults_before_the_handshake_get_their_errors(context: CaseContext) -> None:
    publisher(context)
    peer = context.open(HeraldPeer)
    peer.send(frame(0x30) + frame(0x11)).expect(error(INVALID_OPCODE) + error(MALFORMED_MESSAGE))
    peer.send(struct.pack("<HBI", 0xCAFE, 0x01, PAYLOAD_BYTES_MAX + 1))
    peer.expect(error(MESSAGE_TOO_LARGE))
    peer.expect_close()


@cases.profile("OpCodes", "Every unknown OpCode gets INVALID_OPCODE and the session goes on")
def every_unknown_opcode_is_invalid(context: CaseContext) -> None:
    peer = publisher(context)
    for opcode in context.each(sorted(set(range(256)) - OPCODES)):
        peer.send(frame(opcode, b"abc")).expect(error(INVALID_OPCODE))
    peer.settle()


@cases.profile(
    "Error Codes: MALFORMED_MESSAGE", "A body of a wrong size is malformed and the session goes on"
)
def a_body_of_a_wrong_size_is_malformed(context: CaseContext) -> None:
    peer = publisher(context)
    for wrong in context.each(
        (
            frame(0x10),
            frame(0x11),
            frame(0x11, b"ab"),
            frame(0x12),
            frame(0x12, b"ab"),
            frame(0x20, b"x"),
            frame(0x21, b"x"),
            frame(0x04, b"x"),
            frame(0x13, bytes(8)),
            frame(0x03, bytes(8)),
            frame(0xFF),
            frame(0xFF, b"\x09"),
        )
    ):
        peer.send(wrong + PING).expect(error(MALFORMED_MESSAGE) + PONG)


@cases.profile("Connection Flow", "A frame that a publisher may not send gets INVALID_OPCODE")
def a_publisher_may_not_send_frames_of_others(context: CaseContext) -> None:
    peer = publisher(context)
    for wrong in context.each(
        (subscribe(7), unsubscribe(7), frame(0x13, bytes(9)), frame(0x03, bytes(9)), error(1))
    ):
        peer.send(wrong + PING).expect(error(INVALID_OPCODE) + PONG)


@cases.profile("Connection Flow", "A PUBLISH of a subscriber gets INVALID_OPCODE")
def a_subscriber_may_not_publish(context: CaseContext) -> None:
    peer = subscriber(context, CHANNEL)
    peer.send(publish(CHANNEL, b"x") + PING).expect(error(INVALID_OPCODE) + PONG)


@cases.profile("Validation Rules", "A wrong magic number closes without an answer")
def a_wrong_magic_is_not_answered(context: CaseContext) -> None:
    peer, receiver = publisher(context), subscriber(context, CHANNEL)
    peer.send(publish(CHANNEL, b"good") + b"\xfe\xcb").expect_close()
    receiver.message(CHANNEL, b"good")


@cases.profile("Validation Rules", "First bytes of another protocol close without an answer")
def first_bytes_of_another_protocol_close(context: CaseContext) -> None:
    publisher(context)
    for first in context.each((b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"\xfe\x00", b"\xca\xfa")):
        context.open(HeraldPeer).send(first).expect_close()
