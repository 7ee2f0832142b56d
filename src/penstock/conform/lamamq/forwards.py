"""LamaMQ cases about forwards. The specification does not say when a server sends them."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BIG,
    BROKER_BIT,
    BUFFER,
    EMPTY,
    LITTLE,
    STRING,
    push,
)
from penstock.conform.lamamq.peer import client, subscriber
from penstock.conform.peer import check, equal

__all__ = ["cases"]

CONTENTS: Final = (
    (EMPTY, b""),
    (STRING, b""),
    (STRING, b"21.5"),
    (BUFFER, b""),
    (BUFFER, bytes(range(256))),
)
HEADERS: Final[tuple[tuple[tuple[bytes, bytes], ...], ...]] = (
    (),
    ((b"unit", b"C"),),
    ((b"unit", b"C"), (b"unit", b"F"), (b"", b""), (b"x", bytes(range(256)))),
)

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.profile("Forward message", "A push is forwarded unchanged, in the byte order of the client")
def a_push_is_forwarded_unchanged(context: CaseContext) -> None:
    orders = [(receives, sends) for receives in (BIG, LITTLE) for sends in (BIG, LITTLE)]
    topic = context.topic()
    for receives, sends in orders:
        receiver = subscriber(context, topic, order=receives)
        peer = client(context, order=sends)
        for headers, (kind, payload) in context.each(
            [(headers, content) for headers in HEADERS for content in CONTENTS]
        ):
            peer.ask(
                push(
                    1,
                    topic,
                    payload,
                    kind=kind,
                    headers=headers,
                    created_at=0xFEDCBA98,
                    order=sends,
                )
            )
            found = receiver.expect_forward(
                topic, payload, kind=kind, headers=headers, created_at=0xFEDCBA98
            )
            check(found >= BROKER_BIT, "an id from 0x80000000 up", f"0x{found:08x}")


@cases.profile("Forward message", "The ids of forwards count up, with the top bit set")
def ids_of_forwards_count_up(context: CaseContext) -> None:
    topic = context.topic()
    receiver, peer = subscriber(context, topic), client(context)
    peer.send(b"".join(push(number, topic) for number in range(100)))
    found = [receiver.forwarded().identifier for _ in range(100)]
    equal(found, list(range(found[0], found[0] + 100)), "ids")


@cases.profile("Forward message", "A publisher that subscribed receives its own message")
def a_publisher_receives_its_own_message(context: CaseContext) -> None:
    peer = subscriber(context, context.topic())
    peer.send(push(1, context.topic(), b"mine"))
    peer.expect_payloads(b"mine")
    peer.expect_answer(1)


@cases.profile(
    "Forward message",
    "Without echo a publisher does not receive its own message",
    requires=Setup.NO_ECHO,
)
def without_echo_a_publisher_does_not_receive(context: CaseContext) -> None:
    topic = context.topic()
    peer, other = subscriber(context, topic), subscriber(context, topic)
    peer.request(push(0, topic, b"mine"))
    other.expect_payloads(b"mine")
    peer.settle()
