"""Rheos cases of both versions that follow from the specifications."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector
from penstock.conform.context import CaseContext
from penstock.conform.rheos.encoding import (
    BOB,
    CREATE,
    FAILED,
    INVALID_OPERATION,
    PUBLISH,
    SUBSCRIBE,
    Rheos,
)
from penstock.conform.rheos.peer import RheosPeer, client, created, subscribed
from penstock.conform.rheos.sections import (
    ACKNOWLEDGMENT,
    DELIVERY,
    NOTES,
    OPERATIONS,
    REQUEST,
    TOPIC,
)

__all__ = ["cases", "expect_refusal", "sender_is_named"]

ALL_BYTES: Final = bytes(range(256))

cases: Final[CaseCollector[[Rheos]]] = CaseCollector()


def sender_is_named(context: CaseContext, rheos: Rheos) -> None:
    """Check that a delivery carries the client id of its publisher."""
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    sender.send(rheos.request(PUBLISH, context.topic(), b"hello", client=BOB)).acknowledged()
    receiver.delivered(context.topic(), b"hello", BOB)


def expect_refusal(peer: RheosPeer, data: bytes) -> None:
    """Send invalid bytes; expect FAILED or the end of the connection."""
    peer.send(data)
    if not peer.is_closed():
        peer.acknowledged(FAILED)


@cases.rule(ACKNOWLEDGMENT, "CREATE is acknowledged with SUCCESS")
def create_is_acknowledged(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic())


@cases.rule(ACKNOWLEDGMENT, "SUBSCRIBE to a topic that exists is acknowledged with SUCCESS")
def subscribe_is_acknowledged(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic()).granted(SUBSCRIBE, context.topic())


@cases.rule(ACKNOWLEDGMENT, "PUBLISH to a topic that exists is acknowledged with SUCCESS")
def publish_is_acknowledged(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic()).granted(PUBLISH, context.topic(), b"x")


@cases.rule(ACKNOWLEDGMENT, "Each of many requests in one write is acknowledged once")
def requests_in_one_write_are_all_acknowledged(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    peer.send(rheos.request(PUBLISH, context.topic(), b"x") * 20)
    for _ in range(20):
        peer.acknowledged()
    peer.expect_silence("no more acknowledgments")


@cases.rule(REQUEST, "A packet may arrive byte by byte")
def a_request_arrives_byte_by_byte(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    peer.send_each(rheos.request(CREATE, context.topic()))
    peer.acknowledged()


@cases.rule(REQUEST, "Two packets that share a write, the second one cut, are both answered")
def a_cut_request_is_waited_for(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    publish = rheos.request(PUBLISH, context.topic(), b"whole")
    peer.send(publish + publish[:30])
    peer.acknowledged()
    peer.send(publish[30:])
    peer.acknowledged()


@cases.rule(DELIVERY, "A subscriber receives published messages with their payload unchanged")
def a_message_is_delivered(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    sender.granted(PUBLISH, context.topic(), b"21.5")
    receiver.delivered(context.topic(), b"21.5")


@cases.rule(DELIVERY, "An empty payload is delivered")
def an_empty_payload_is_delivered(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    sender.granted(PUBLISH, context.topic())
    receiver.delivered(context.topic(), b"")


@cases.rule(DELIVERY, "A payload may hold any bytes")
def any_bytes_are_delivered(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    payload = ALL_BYTES + b"\xfa\xac\x15" * 20
    sender.granted(PUBLISH, context.topic(), payload)
    receiver.delivered(context.topic(), payload)


@cases.rule(TOPIC, "A payload of 65,535 bytes is delivered")
def a_payload_of_64_kib_is_delivered(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    payload = (ALL_BYTES * 256)[:65_535]
    sender.granted(PUBLISH, context.topic(), payload)
    receiver.delivered(context.topic(), payload)


@cases.rule(TOPIC, "Two subscribers of a topic both receive a message")
def all_subscribers_receive(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receivers = [subscribed(context, rheos, context.topic()) for _ in range(2)]
    sender.granted(PUBLISH, context.topic(), b"both")
    for receiver in receivers:
        receiver.delivered(context.topic(), b"both")


@cases.rule(TOPIC, "A subscriber receives nothing of other topics")
def other_topics_are_not_delivered(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic(b"mine"))
    sender.granted(CREATE, context.topic(b"other"))
    receiver = subscribed(context, rheos, context.topic(b"mine"))
    sender.granted(PUBLISH, context.topic(b"other"), b"not this")
    sender.granted(PUBLISH, context.topic(b"mine"), b"this")
    receiver.delivered(context.topic(b"mine"), b"this")


@cases.rule(TOPIC, "Messages of one publisher arrive in their order")
def order_is_kept(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    numbers = [struct.pack("<I", number) for number in range(50)]
    sender.send(b"".join(rheos.request(PUBLISH, context.topic(), number) for number in numbers))
    for number in numbers:
        receiver.delivered(context.topic(), number)


@cases.rule(OPERATIONS, "Operation code 3 is refused")
def the_reserved_operation_is_refused(context: CaseContext, rheos: Rheos) -> None:
    packet = rheos.request(INVALID_OPERATION, context.topic())
    expect_refusal(created(context, rheos, context.topic()), packet)


@cases.rule(OPERATIONS, "Operation code 255 is refused")
def an_unknown_operation_is_refused(context: CaseContext, rheos: Rheos) -> None:
    expect_refusal(created(context, rheos, context.topic()), rheos.request(255, context.topic()))


@cases.rule(NOTES, "A packet whose first byte is not 0xFA is refused")
def a_wrong_magic_is_refused(context: CaseContext, rheos: Rheos) -> None:
    packet = rheos.request(PUBLISH, context.topic(), b"x")
    expect_refusal(created(context, rheos, context.topic()), b"\xfb" + packet[1:])


@cases.rule(NOTES, "A name that is longer than its packet is refused")
def a_name_beyond_the_body_is_refused(context: CaseContext, rheos: Rheos) -> None:
    body = rheos.body(b"name", b"data")
    packet = rheos.packet(PUBLISH, b"\xff\x00" + body[2:])
    expect_refusal(created(context, rheos, context.topic()), packet)


@cases.rule(NOTES, "A body with bytes behind its data is refused")
def a_body_with_bytes_left_over_is_refused(context: CaseContext, rheos: Rheos) -> None:
    name = context.topic()
    packet = rheos.packet(PUBLISH, rheos.body(name, b"data") + b"more")
    expect_refusal(created(context, rheos, name), packet)


@cases.rule(NOTES, "An empty body is refused")
def an_empty_body_is_refused(context: CaseContext, rheos: Rheos) -> None:
    expect_refusal(created(context, rheos, context.topic()), rheos.packet(PUBLISH, b""))


@cases.rule(NOTES, "A client that is cut off inside a packet does not disturb others")
def a_client_that_leaves_inside_a_packet_disturbs_no_other(
    context: CaseContext, rheos: Rheos
) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    broken = subscribed(context, rheos, context.topic())
    broken.send(rheos.request(PUBLISH, context.topic(), b"never whole")[:-3]).close()
    sender.granted(PUBLISH, context.topic(), b"goes on")
    receiver.delivered(context.topic(), b"goes on")


@cases.rule(NOTES, "A malformed packet of one client does not disturb others")
def a_malformed_packet_disturbs_no_other(context: CaseContext, rheos: Rheos) -> None:
    sender = created(context, rheos, context.topic())
    receiver = subscribed(context, rheos, context.topic())
    expect_refusal(subscribed(context, rheos, context.topic()), rheos.packet(PUBLISH, b"\xff"))
    sender.granted(PUBLISH, context.topic(), b"goes on")
    receiver.delivered(context.topic(), b"goes on")
