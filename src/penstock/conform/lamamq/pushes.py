"""LamaMQ cases about pushes and their answers."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    BUFFER,
    EMPTY,
    LITTLE,
    STRING,
    push,
    subscribe,
    unsubscribe,
)
from penstock.conform.lamamq.peer import client, subscriber
from penstock.conform.peer import check

__all__ = ["cases"]


cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("Push message", "A push is answered with its id and error 0")
def a_push_is_answered(context: CaseContext) -> None:
    client(context).ask(push(7, context.topic(), b"21.5"))


@cases.rule("Structure - Message header", "Ids are the client's: any is answered with itself")
def any_id_is_answered_with_itself(context: CaseContext) -> None:
    peer = client(context)
    for identifier in context.each((1, 0x0102_0304, 0x7FFF_FFFF)):
        peer.ask(push(identifier, context.topic()))


@cases.rule("Structure - Message header", "An id may be used again once it was answered")
def an_id_may_be_used_again(context: CaseContext) -> None:
    peer = client(context)
    for _ in range(3):
        peer.ask(push(5, context.topic()))


@cases.rule("Structure - Message header", "Two clients may use one id at a time")
def two_clients_may_use_one_id(context: CaseContext) -> None:
    one, two = client(context), client(context)
    start, end = push(5, context.topic(), b"x")[:-1], b"x"
    one.send(start)
    two.send(start).send(end).expect_answer(5)
    one.send(end).expect_answer(5)


@cases.rule("Structure - Message", "Payload types empty, string and buffer are accepted")
def all_payload_types_are_accepted(context: CaseContext) -> None:
    peer = client(context)
    for kind, payload in context.each(
        ((EMPTY, b""), (STRING, b"text"), (BUFFER, bytes(range(256))), (BUFFER, b""))
    ):
        peer.ask(push(1, context.topic(), payload, kind=kind))


@cases.rule("Structure - Message", "A message may have headers")
def a_message_may_have_headers(context: CaseContext) -> None:
    headers = ((b"unit", b"C"), (b"empty", b""), (b"unit", b"twice"))
    client(context).ask(push(1, context.topic(), b"x", headers=headers))


@cases.rule("Push message", "Each of many pushes in one write is answered")
def many_pushes_in_one_write_are_answered(context: CaseContext) -> None:
    peer = client(context)
    numbers = range(1, 51)
    peer.send(b"".join(push(number, context.topic(), b"x") for number in numbers))
    found = {peer.expect(4, b"\x00")[:4] for _ in numbers}
    missing = sorted({struct.pack(">I", number) for number in numbers} - found)
    check(not missing, "answers to ids 1 to 50", f"none to {[one.hex() for one in missing]}")


@cases.rule("Push message", "A push may arrive byte by byte")
def a_push_arrives_byte_by_byte(context: CaseContext) -> None:
    client(context).send_each(push(3, context.topic(), b"slow")).expect_answer(3)


@cases.rule("Basic types", "A payload of 200,000 bytes is accepted")
def a_large_payload_is_accepted(context: CaseContext) -> None:
    client(context).ask(push(1, context.topic(), bytes(200_000)))


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("Structure - Message header", "Any id is answered, in either byte order")
def any_id_is_answered_in_either_order(context: CaseContext) -> None:
    for order in (BIG, LITTLE):
        peer = client(context, order=order)
        for identifier in context.each((0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)):
            peer.ask(push(identifier, context.topic(), b"x", order=order))


@cases.profile("Structure - Message header", "Ids are not compared: one that waits is taken again")
def an_id_that_waits_is_taken_again(context: CaseContext) -> None:
    receiver, peer = subscriber(context, context.topic()), client(context)
    peer.send(push(5, context.topic(), b"1") + push(5, context.topic(), b"2"))
    peer.expect_answers(5, 5)
    receiver.expect_payloads(b"1", b"2")


@cases.profile("Structure - Message", "Text in a payload and header values may be any bytes")
def strings_of_a_message_may_be_any_bytes(context: CaseContext) -> None:
    receiver, peer = subscriber(context, context.topic()), client(context)
    headers = ((b"k", b"\xff\x00"),)
    peer.ask(push(1, context.topic(), b"\xff\xfe", kind=STRING, headers=headers))
    receiver.expect_forward(context.topic(), b"\xff\xfe", kind=STRING, headers=headers)


@cases.profile("Push message", "1,000 pushes in one write are answered in their order")
def a_thousand_pushes_are_answered_in_order(context: CaseContext) -> None:
    for order in context.each((BIG, LITTLE)):
        peer = client(context, order=order)
        peer.send(
            b"".join(
                push(number, context.topic(b"%d" % (number % 7)), b"%d" % number, order=order)
                for number in range(1000)
            )
        )
        peer.expect_answers(*range(1000))


@cases.profile("Push message", "Pushes and other requests are answered in their order")
def pushes_and_requests_are_answered_in_order(context: CaseContext) -> None:
    peer = client(context)
    topic = context.topic()
    peer.send(
        push(1, topic)
        + subscribe(2, topic + b"/x")
        + push(3, topic)
        + unsubscribe(4, topic + b"/y")
        + push(5, topic)
    )
    peer.expect_answers(1, 2, 3)
    peer.expect_answer(4, BAD_REQUEST)
    peer.expect_answer(5)


@cases.profile("Push message", "A subscription and a push may arrive byte by byte")
def messages_arrive_byte_by_byte(context: CaseContext) -> None:
    for order in context.each((BIG, LITTLE)):
        peer = client(context, order=order)
        topic = context.topic(b"1")
        peer.send_each(
            subscribe(1, context.topic(b"+"), order=order)
            + push(2, topic, b"xy", headers=[(b"k", b"v")], order=order)
        )
        peer.expect_answer(1)
        peer.expect_forward(topic, b"xy", headers=((b"k", b"v"),))
        peer.expect_answer(2)


@cases.profile("Push message", "A message behind a large one that came in parts is answered")
def a_message_behind_a_large_one_is_answered(context: CaseContext) -> None:
    peer = client(context).settle()
    large = push(1, context.topic(), bytes(3_000_000))
    for start in range(0, len(large), 100_000):
        peer.send(large[start : start + 100_000])
    peer.expect_answer(1)
    peer.send(unsubscribe(2, b"no")).expect_answer(2, BAD_REQUEST)


@cases.profile("Errors: Bad request", "A topic that cannot be gets error 2; others are accepted")
def a_topic_that_cannot_be_is_refused(context: CaseContext) -> None:
    fine = context.topic()
    receiver, peer = subscriber(context, fine), client(context)
    starts = (b"a@earliest", b"a@-15m", b"a@#7", b"a@2026-11-01", b"a@last")
    near_starts = (b"a@ealiest", b"a@lats", b"a@gruop=x")
    for topic in context.each((b"", b"a/+/b", b"#", b"a.*", b"a/>", *starts, *near_starts)):
        peer.send(push(1, fine, b"1") + push(2, topic, b"x") + push(3, fine, b"2"))
        peer.expect_answer(1)
        text = peer.expect_answer(2, BAD_REQUEST)
        check(b"no topic can be named" in text, "a text with 'no topic can be named'", text)
        peer.expect_answer(3)
        receiver.expect_payloads(b"1", b"2")


@cases.profile(
    "Errors: Bad request",
    "A forbidden push gets error 2; others are delivered once",
    requires=Setup.RULES,
)
def a_forbidden_push_is_refused(context: CaseContext) -> None:
    receiver, peer = subscriber(context, b"t/+"), client(context)
    topics = [b"t/1", b"t/1", b"secret/x", b"t/2", b"t/1", b"secret/y", b"t/3"]
    peer.send(b"".join(push(n, topic, b"%d" % n) for n, topic in enumerate(topics)))
    for number, topic in context.each(enumerate(topics)):
        if topic.startswith(b"secret"):
            text = b"guest may not publish to '%s'" % topic
            peer.expect_text(number, BAD_REQUEST, text)
        else:
            peer.expect_answer(number)
    receiver.expect_payloads(b"0", b"1", b"3", b"4", b"6")
    receiver.settle()
