"""Rheos cases of Penstock's profile about PUBLISH: message ids, order and delivery."""

import uuid
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import Peer, check, equal
from penstock.conform.rheos.encoding import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
    log_of,
)
from penstock.conform.rheos.peer import client, created, message_offset, subscribed
from penstock.conform.rheos.sections import ACKNOWLEDGMENT, DELIVERY, NOTES, TOPIC, TOPIC_ERRORS

__all__ = ["cases"]

cases: Final[CaseCollector[[Rheos]]] = CaseCollector()


def check_sequence(offsets: list[int]) -> None:
    """Check that offsets count up by one."""
    equal(offsets, list(range(offsets[0], offsets[0] + len(offsets))), "offsets")


@cases.profile(ACKNOWLEDGMENT, "PUBLISH is acknowledged with the UUIDv8 of the message")
def publish_is_acknowledged_with_the_message_id(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    made = peer.granted(CREATE, context.topic())
    found = [peer.granted(PUBLISH, context.topic(), b"%d" % number) for number in range(3)]
    offsets = [message_offset(identifier) for identifier in found]
    check(offsets[0] < NO_MESSAGE, f"an offset below {NO_MESSAGE}", offsets[0])
    check_sequence(offsets)
    equal({log_of(identifier) for identifier in found}, {log_of(made)}, "log ids")


@cases.profile(TOPIC_ERRORS, "PUBLISH to a topic that does not exist fails and creates nothing")
def publish_creates_no_topic(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for _ in range(2):
        peer.refused(PUBLISH, context.topic(), b"1")
    peer.granted(CREATE, context.topic())


@cases.profile(NOTES, "The first request of a connection may be PUBLISH")
def the_first_request_may_be_publish(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    receiver = created(context, rheos, topic)
    receiver.granted(SUBSCRIBE, topic)
    client(context, rheos, identity=BOB).granted(PUBLISH, topic, b"first")
    receiver.delivered(topic, b"first", BOB)
    peer = client(context, rheos)
    peer.refused(PUBLISH, context.topic(b"unknown"), b"first")
    peer.expect_alive()


@cases.profile(TOPIC, "A publisher that subscribed receives its own message")
def a_publisher_receives_its_own_message(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer = created(context, rheos, topic)
    peer.granted(SUBSCRIBE, topic)
    peer.request(PUBLISH, topic, b"mine")
    answers, messages = peer.sort(acks=1, deliveries=1)
    equal(answers[0].code, SUCCESS, "code")
    equal(messages, [rheos.delivery(ALICE, topic, b"mine")])


@cases.profile(
    TOPIC, "Without echo a publisher does not receive its own message", requires=Setup.NO_ECHO
)
def without_echo_a_publisher_does_not_receive(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer, other = created(context, rheos, topic), client(context, rheos, identity=BOB)
    peer.granted(SUBSCRIBE, topic)
    peer.granted(PUBLISH, topic, b"mine")
    other.granted(PUBLISH, topic, b"other")
    peer.delivered(topic, b"other", BOB)


@cases.rule(DELIVERY, "Payloads of 0 to 65,535 bytes are delivered unchanged")
def payloads_of_any_size_are_delivered(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    other, peer = created(context, rheos, topic), subscribed(context, rheos, topic)
    for size in context.each((0, 1, 255, 256, 65_535)):
        payload = bytes(position * 7 & 0xFF for position in range(size))
        other.granted(PUBLISH, topic, payload)
        peer.delivered(topic, payload)


@cases.profile(DELIVERY, "Each message carries the client id of its own request")
def each_message_carries_the_client_id_of_its_request(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    other, peer = created(context, rheos, topic), subscribed(context, rheos, topic)
    senders = [bytes((number,)) * 16 for number in range(200)]
    other.send(b"".join(rheos.request(PUBLISH, topic, one[:1], client=one) for one in senders))
    check_sequence([message_offset(other.acknowledged()) for _ in senders])
    for sender in senders:
        peer.delivered(topic, sender[:1], sender)


@cases.profile(
    DELIVERY,
    "The sender of a message of another protocol is a UUIDv8 with its session number",
    requires=Setup.SHARED,
)
def a_sender_of_another_protocol_has_a_uuid(context: CaseContext, rheos: Rheos) -> None:
    peer, sender = client(context, rheos), context.open(Peer)
    peer.granted(SUBSCRIBE, b"channel/240")
    # A handshake of herald, its acknowledgment with the session id, and PUBLISH to channel 240
    sender.send(bytes.fromhex("feca 01 03000000 f0 01 70"))
    acknowledgment = sender.expect(bytes.fromhex("feca 03 09000000 00"), 8)
    number = int.from_bytes(acknowledgment[8:], "little")
    sender.send(bytes.fromhex("feca 10 05000000 f0 32312e35"))
    found = uuid.UUID(bytes=peer.delivered(b"channel/240", b"21.5"))
    equal((found.version, found.int & 0xFFFFFFFF), (8, number), "version and session number")


@cases.profile(ACKNOWLEDGMENT, "1,000 messages in one write are acknowledged in their order")
def a_thousand_messages_keep_their_order(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    other, peer = created(context, rheos, topic), subscribed(context, rheos, topic)
    payloads = [b"%d" % number for number in range(1000)]
    other.send(b"".join(rheos.request(PUBLISH, topic, one, client=BOB) for one in payloads))
    check_sequence([message_offset(other.acknowledged()) for _ in payloads])
    for payload in payloads:
        peer.delivered(topic, payload, BOB)


@cases.profile(ACKNOWLEDGMENT, "A message that fails is acknowledged at its place")
def a_message_that_fails_keeps_its_place(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer = created(context, rheos, topic)
    known = [number % 7 != 3 for number in range(100)]
    peer.send(
        b"".join(rheos.request(PUBLISH, topic if one else topic + b"/no", b"1") for one in known)
    )
    found = [peer.ack() for _ in known]
    equal([ack.code == SUCCESS for ack in found], known, "successes")
    check_sequence([message_offset(ack.identifier) for ack in found if ack.code == SUCCESS])
    failed = {message_offset(ack.identifier) for ack in found if ack.code == FAILED}
    equal(failed, {NO_MESSAGE}, "offsets of failures")


@cases.profile(ACKNOWLEDGMENT, "All operations in one write are done and acknowledged in order")
def all_operations_in_one_write_keep_their_order(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    steps = [
        (PUBLISH, topic, b"0", FAILED),
        (SUBSCRIBE, topic, b"", FAILED),
        (CREATE, topic, b"", SUCCESS),
        (PUBLISH, topic, b"1", SUCCESS),
        (SUBSCRIBE, topic, b"", SUCCESS),
        (PUBLISH, topic, b"2", SUCCESS),
        (PUBLISH, topic, b"3", SUCCESS),
        (CREATE, topic, b"", FAILED),
        (PUBLISH, topic + b"/unknown", b"4", FAILED),
        (PUBLISH, topic, b"5", SUCCESS),
    ]
    peer = client(context, rheos)
    peer.send(b"".join(rheos.request(*step[:3]) for step in steps))
    answers, messages = peer.sort(acks=len(steps), deliveries=3)
    equal([ack.code for ack in answers], [step[3] for step in steps], "codes")
    equal([message.payload for message in messages], [b"2", b"3", b"5"], "payloads")


@cases.profile(DELIVERY, "Messages of 50 topics arrive in the order of their publisher")
def messages_of_many_topics_keep_their_order(context: CaseContext, rheos: Rheos) -> None:
    names = [context.topic(b"%d" % number) for number in range(50)]
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    peer.granted(SUBSCRIBE, context.topic(b"#"))
    other.send(b"".join(rheos.request(CREATE, name) for name in names))
    equal(set(other.codes(len(names))), {SUCCESS}, "codes")
    sent = [(names[number * 17 % 50], b"%d" % number) for number in range(500)]
    other.send(b"".join(rheos.request(PUBLISH, *one, client=BOB) for one in sent))
    equal(set(other.codes(len(sent))), {SUCCESS}, "codes")
    for name, payload in sent:
        peer.delivered(name, payload, BOB)


@cases.profile(NOTES, "A forbidden PUBLISH fails at its place", requires=Setup.RULES)
def a_forbidden_publish_fails_at_its_place(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    peer.granted(SUBSCRIBE, b"channel/+")
    names = [b"channel/%d" % (number % 3) for number in range(30)]
    peer.send(b"".join(rheos.request(PUBLISH, name, name) for name in names))
    answers, messages = peer.sort(acks=30, deliveries=20)
    expected = [FAILED if name == b"channel/1" else SUCCESS for name in names]
    equal([ack.code for ack in answers], expected, "codes")
    allowed = [name for name in names if name != b"channel/1"]
    equal([message.payload for message in messages], allowed, "payloads")


@cases.profile(NOTES, "A client that half-closes still gets its acknowledgments")
def a_client_that_half_closes_is_answered(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    peer.send(rheos.request(PUBLISH, context.topic(), b"1") * 1000).half_close()
    equal(peer.codes(1000), [SUCCESS] * 1000, "codes")
    peer.expect_close()
