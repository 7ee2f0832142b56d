"""herald cases about channels and messages."""

import struct
import time
import zlib
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    MESSAGE_TOO_LARGE,
    PING,
    PONG,
    RATE_LIMIT_EXCEEDED,
    error,
    handshake_pub,
    publish,
    subscribe,
    unsubscribe,
)
from penstock.conform.herald.peer import CHANNEL, OTHER, HeraldPeer, publisher, subscriber
from penstock.conform.peer import Peer, check, equal

__all__ = ["cases"]

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("MESSAGE (0x13)", "A subscriber receives messages that are published to its channel")
def a_message_is_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"21.5"))
    receiver.message(CHANNEL, b"21.5")


@cases.rule("MESSAGE (0x13)", "An empty message is delivered")
def an_empty_message_is_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b""))
    receiver.message(CHANNEL, b"")


@cases.rule("MESSAGE (0x13)", "A message may hold any bytes")
def any_bytes_are_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    message = bytes(range(256)) + b"\xfe\xca\x13" * 20
    sender.send(publish(CHANNEL, message))
    receiver.message(CHANNEL, message)


@cases.rule("Protocol Characteristics", "A message of 1,000,000 bytes is delivered")
def a_large_message_is_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    message = bytes(range(250)) * 4000
    sender.send(publish(CHANNEL, message))
    receiver.message(CHANNEL, message)


@cases.rule("MESSAGE (0x13)", "Timestamps are the broker's, and do not go back")
def timestamps_do_not_go_back(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"1") + publish(CHANNEL, b"2"))
    first, second = receiver.message(CHANNEL, b"1"), receiver.message(CHANNEL, b"2")
    if not 0 < first <= second:
        raise receiver.failed("two timestamps in order, above 0", f"{first} and {second}")


@cases.rule("Channel Management", "A subscriber receives nothing of other channels")
def other_channels_are_not_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(OTHER, b"not this") + publish(CHANNEL, b"this"))
    receiver.message(CHANNEL, b"this")


@cases.rule("Channel Management", "A channel is any byte, from 0 to 255")
def channels_are_0_to_255(context: CaseContext) -> None:
    receiver, sender = subscriber(context), publisher(context)
    for channel in context.each((0, 1, 127, 128, 254, 255)):
        receiver.send(subscribe(channel)).settle()
        sender.send(publish(channel, b"x")).settle()
        receiver.message(channel, b"x")
        receiver.send(unsubscribe(channel)).settle()


@cases.rule("Channel Management", "The channels of the handshake are all subscribed to")
def all_channels_of_the_handshake_count(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL, OTHER), publisher(context)
    sender.send(publish(OTHER, b"a") + publish(CHANNEL, b"b"))
    receiver.message(OTHER, b"a")
    receiver.message(CHANNEL, b"b")


@cases.rule("SUBSCRIBE (0x11)", "SUBSCRIBE adds a channel")
def subscribe_adds_a_channel(context: CaseContext) -> None:
    receiver, sender = subscriber(context), publisher(context)
    receiver.send(subscribe(CHANNEL)).settle()
    sender.send(publish(CHANNEL, b"added"))
    receiver.message(CHANNEL, b"added")


@cases.rule("UNSUBSCRIBE (0x12)", "UNSUBSCRIBE takes a channel away")
def unsubscribe_takes_a_channel_away(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL, OTHER), publisher(context)
    receiver.send(unsubscribe(CHANNEL)).settle()
    sender.send(publish(CHANNEL, b"gone") + publish(OTHER, b"here"))
    receiver.message(OTHER, b"here")


@cases.rule("Overview", "Every subscriber of a channel receives a message")
def all_subscribers_receive(context: CaseContext) -> None:
    receivers, sender = [subscriber(context, CHANNEL) for _ in range(3)], publisher(context)
    sender.send(publish(CHANNEL, b"all"))
    for receiver in receivers:
        receiver.message(CHANNEL, b"all")


@cases.rule("Partial Frame Handling", "Many frames in one write are all acted on, in order")
def many_frames_in_one_write(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    messages = [struct.pack("<I", number) for number in range(1000)]
    sender.send(b"".join(publish(CHANNEL, message) for message in messages))
    for message in messages:
        receiver.message(CHANNEL, message)


@cases.rule("Partial Frame Handling", "A frame that is cut is waited for")
def a_cut_frame_is_waited_for(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    whole = publish(CHANNEL, b"in two parts")
    for cut in (3, 9):
        sender.send(whole[:cut])
        receiver.expect_silence("nothing: the frame is not whole")
        sender.send(whole[cut:])
        receiver.message(CHANNEL, b"in two parts")


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("MESSAGE (0x13)", "A timestamp is the time of the broker in microseconds")
def a_timestamp_is_in_microseconds(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"now"))
    found, now = receiver.message(CHANNEL, b"now"), time.time_ns() // 1000
    check(abs(found - now) < 60_000_000, f"about {now}, within a minute", found)


@cases.profile("OpCodes", "A publisher may publish on any channel")
def a_publisher_may_use_any_channel(context: CaseContext) -> None:
    receiver, sender = subscriber(context, *range(255)), publisher(context, 0)
    sender.send(b"".join(publish(channel, bytes([channel])) for channel in range(255)))
    for channel in context.each(range(255)):
        receiver.message(channel, bytes([channel]))


@cases.profile("SUBSCRIBE (0x11)", "SUBSCRIBE and UNSUBSCRIBE take effect in their order")
def subscribe_and_unsubscribe_keep_their_order(context: CaseContext) -> None:
    receiver, sender = subscriber(context), publisher(context)
    receiver.send(subscribe(CHANNEL)).settle()
    sender.send(publish(CHANNEL, b"one"))
    receiver.message(CHANNEL, b"one")
    receiver.send(subscribe(CHANNEL) + unsubscribe(CHANNEL)).settle()
    sender.send(publish(CHANNEL, b"two")).settle()
    receiver.settle()


@cases.profile("UNSUBSCRIBE (0x12)", "UNSUBSCRIBE without a subscription is not answered")
def unsubscribe_without_a_subscription_is_not_answered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    receiver.send(unsubscribe(OTHER) + unsubscribe(OTHER)).settle()
    sender.send(publish(CHANNEL, b"still here"))
    receiver.message(CHANNEL, b"still here")


@cases.profile("Partial Frame Handling", "A session may arrive byte by byte")
def a_session_arrives_byte_by_byte(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), context.open(HeraldPeer)
    sender.send_each(handshake_pub(CHANNEL) + publish(CHANNEL, b"slow") + PING)
    receiver.message(CHANNEL, b"slow")
    sender.take(16, "HANDSHAKE_ACK")
    sender.expect(PONG)


@cases.profile("Protocol Characteristics", "Messages of 70,000 to 1,048,567 bytes are delivered")
def large_messages_are_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    for size in context.each((70_000, 262_144, 600_000, 1_048_567)):
        message = (bytes(n % 253 for n in range(1000)) * (size // 1000 + 1))[:size]
        sender.send(publish(CHANNEL, message) + publish(CHANNEL, b"after"))
        receiver.message(CHANNEL, message)
        receiver.message(CHANNEL, b"after")


@cases.profile(
    "Protocol Characteristics",
    "A PUBLISH whose MESSAGE would exceed 1 MiB is too large, and the session goes on",
)
def a_publish_that_cannot_be_delivered_is_too_large(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    for size in context.each((1_048_568, 1_048_575)):
        sender.send(publish(CHANNEL, bytes(size))).expect(error(MESSAGE_TOO_LARGE))
    sender.send(publish(CHANNEL, bytes(1_048_567)) + publish(CHANNEL, b"next"))
    sender.settle()
    receiver.message(CHANNEL, bytes(1_048_567))
    receiver.message(CHANNEL, b"next")


@cases.profile(
    "MESSAGE (0x13)",
    "A message of another protocol that fits in no MESSAGE is not delivered",
    requires=Setup.SHARED,
)
def a_message_that_fits_in_no_frame_is_not_delivered(context: CaseContext) -> None:
    receiver, sender, topic = subscriber(context, CHANNEL), context.open(Peer), b"channel/240"
    for size in context.each((1_048_568, 1_048_567)):
        # PUBLISH of Rheos v2, and its acknowledgment
        head = struct.pack("<BI16sBHI", 0xFA, 6 + len(topic) + size, bytes(16), 2, len(topic), size)
        packet = head + topic + bytes(size)
        sender.send(packet + struct.pack("<I", zlib.crc32(packet))).expect(b"\xac\x00", 20)
    receiver.message(CHANNEL, bytes(1_048_567))
    receiver.settle()


@cases.profile("Partial Frame Handling", "Control frames and messages keep their order")
def control_frames_and_messages_keep_their_order(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    first, second, third = (publish(CHANNEL, text) for text in (b"1", b"2", b"3"))
    sender.send(first + PING + second + PING + third).expect(PONG + PONG)
    for message in (b"1", b"2", b"3"):
        receiver.message(CHANNEL, message)


@cases.profile(
    "Error Codes: RATE_LIMIT_EXCEEDED",
    "A PUBLISH above the rate is not delivered and gets an error",
    requires=Setup.RATE,
)
def a_publish_above_the_rate_is_refused(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(b"".join(publish(CHANNEL, bytes([n])) for n in range(30)) + PING)
    refused = 0
    while (answer := sender.take(7, "an ERROR or PONG")) != PONG:
        equal(answer + sender.take(1, "an ERROR"), error(RATE_LIMIT_EXCEEDED))
        refused += 1
    check(15 <= refused <= 20, "15 to 20 errors", refused)
    for number in range(10):
        receiver.message(CHANNEL, bytes([number]))
    delivered = 10
    while delivered < 30 - refused:
        size = struct.unpack("<HBI", receiver.take(7, "a MESSAGE"))[2]
        equal(size, 10, "MESSAGE with a payload size of")
        receiver.take(size, "a MESSAGE")
        delivered += 1
