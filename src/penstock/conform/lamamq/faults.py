"""LamaMQ cases about invalid messages."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    LITTLE,
    answer,
    counted,
    forward,
    header,
    push,
    subscribe,
    unsubscribe,
)
from penstock.conform.lamamq.peer import LamaPeer, client, subscriber
from penstock.conform.peer import check, equal

__all__ = ["cases"]


cases: Final[CaseCollector[[]]] = CaseCollector()


def expect_refusal(peer: LamaPeer, data: bytes) -> None:
    """Send invalid bytes; expect an error or the end of the connection."""
    peer.send(data)
    if not peer.is_closed():
        peer.expect_answer(int.from_bytes(data[:4], "big"), BAD_REQUEST)


@cases.rule("Errors: Bad request", "An unknown payload type is refused")
def an_unknown_payload_type_is_refused(context: CaseContext) -> None:
    expect_refusal(client(context), push(9, context.topic(), b"x", kind=7))


@cases.rule("Errors: Bad request", "An unknown message type is refused")
def an_unknown_message_type_is_refused(context: CaseContext) -> None:
    expect_refusal(client(context), header(9, 99) + counted(b"x"))


@cases.rule("Errors: Bad request", "A broken client does not disturb others")
def a_broken_client_disturbs_no_other(context: CaseContext) -> None:
    peer, broken = client(context), client(context)
    broken.send(push(1, context.topic(), b"never whole")[:-3]).close()
    peer.ask(push(1, context.topic(), b"goes on"))


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("Forward message", "A forward from a client is taken like a push")
def a_forward_from_a_client_is_taken(context: CaseContext) -> None:
    topic = context.topic()
    for order in context.each((BIG, LITTLE)):
        receiver, peer = subscriber(context, topic), client(context, order=order)
        peer.send(forward(9, topic, b"x", order=order)).expect_answer(9)
        peer.request(push(0, topic, b"y", order=order))
        receiver.expect_payloads(b"x", b"y")


@cases.profile("Structure - Message", "A message may have 65,535 headers")
def a_message_may_have_65535_headers(context: CaseContext) -> None:
    topic, headers = context.topic(), [(b"", b"")] * 65_535
    receiver, peer = subscriber(context, topic), client(context)
    peer.send(push(1, topic, b"x", headers=headers)).expect_answer(1)
    found = receiver.forwarded()
    equal(len(found.headers), len(headers), "headers")
    equal(found.payload, b"x", "payload")


@cases.profile("Structure - Message", "A header that begins with penstock- gets error 2")
def a_reserved_header_is_refused(context: CaseContext) -> None:
    topic = context.topic()
    receiver = subscriber(context, topic)
    for order, make in context.each(
        [(order, make) for order in (BIG, LITTLE) for make in (push, forward)]
    ):
        peer = client(context, order=order)
        for headers in (
            [(b"penstock-hook", b"h")],
            [(b"a", b""), (b"penstock-", b"")],
        ):
            peer.send(make(7, topic, b"no", headers=headers, order=order))
            text = peer.expect_answer(7, BAD_REQUEST)
            check(b"penstock-" in text, "a text with the name of the header", text)
        peer.request(push(0, topic, b"yes", headers=[(b"Penstock-", b"")], order=order))
        receiver.expect_payloads(b"yes")


@cases.profile("Forward message", "An answer to a forward is ignored")
def an_answer_to_a_forward_is_ignored(context: CaseContext) -> None:
    topic = context.topic()
    for order in context.each((BIG, LITTLE)):
        receiver, peer = subscriber(context, topic, order=order), client(context)
        for error, text in ((0, b""), (1, b"fail"), (2, b""), (4, b"no"), (9, b"unknown")):
            peer.request(push(0, topic, b"x"))
            got = receiver.forwarded()
            receiver.send(answer(got.identifier, error, text, order=order)).settle()
            peer.request(push(0, topic, b"y"))
            got = receiver.forwarded()
            receiver.send(
                answer(got.identifier, error, text, order=order)
                + push(5, context.topic(b"other"), b"z", order=order)
            ).expect_answer(5)


@cases.profile("Errors: Bad request", "A wrong field gets error 2 and the connection goes on")
def a_wrong_field_does_not_close(context: CaseContext) -> None:
    peer = client(context)
    topic = context.topic()
    for data in context.each(
        (
            push(5, b"\xff", b"x"),
            push(5, b"r", b"x", headers=[(b"\xff", b"v")]),
            subscribe(5, b"\xff"),
            unsubscribe(5, b"\xff"),
            header(5, 64) + counted(b"") + struct.pack(">IIBB", 0, 0, 0, 0),
            header(5, 64) + counted(b"h") + struct.pack(">IIBB", 0, 0, 9, 0),
            header(5, 65) + counted(b"\xff"),
        )
    ):
        peer.send(push(4, topic) + data + push(6, topic))
        peer.expect_answer(4)
        text = peer.expect_answer(5, BAD_REQUEST)
        check(text.startswith(b"bad request: "), "a text that begins with 'bad request: '", text)
        peer.expect_answer(6)


@cases.profile("Errors: Bad request", "A message whose end is unknown gets error 2 and closes")
def a_message_without_an_end_closes(context: CaseContext) -> None:
    start = header(5, 0) + struct.pack(">I", 0)
    topic = start + counted(b"t")
    hook = header(5, 64) + counted(b"h")
    for _, data in context.each(
        (
            ("message type", header(5, 2)),
            ("payload type", topic + b"\x00\x00" + b"\x03"),
            ("header size", topic + b"\x00\x01" + struct.pack(">I", 1048576)),
            ("topic size", start + struct.pack(">I", 65536)),
            ("payload size", topic + b"\x00\x00\x02" + struct.pack(">I", 16777217)),
            ("pattern size", header(5, 32) + struct.pack(">I", 65536)),
            ("hook type", hook + struct.pack(">IIBB", 0, 0, 0, 2)),
            ("condition type", hook + struct.pack(">IIBBHB", 0, 0, 0, 16, 1, 1)),
            ("number of conditions", hook + struct.pack(">IIBBH", 0, 0, 0, 16, 65)),
            ("hook name size", header(5, 64) + struct.pack(">I", 256)),
        )
    ):
        peer = client(context)
        peer.send(push(4, context.topic()) + data).expect_answer(4)
        check(peer.expect_answer(5, BAD_REQUEST), "a text that says what is wrong", "no text")
        peer.expect_close()


@cases.profile("Errors: Bad request", "A client that is closed for its error disturbs no other")
def a_closed_client_disturbs_no_other(context: CaseContext) -> None:
    topic = context.topic()
    receiver, sound, broken = subscriber(context, topic), client(context), client(context)
    broken.send(header(1, 99) + bytes(1000)).expect_answer(1, BAD_REQUEST)
    broken.expect_close()
    sound.request(push(0, topic, b"x"))
    receiver.expect_payloads(b"x")
