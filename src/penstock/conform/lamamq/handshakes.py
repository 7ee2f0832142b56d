"""LamaMQ cases about the handshake."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    CHOICE,
    LITTLE,
    OFFER,
    SERVER_EXCEPTION,
    authentication,
    counted,
    push,
)
from penstock.conform.lamamq.peer import LamaPeer, client
from penstock.conform.peer import Failed, check
from penstock.limits import CONFORM_SILENCE_SECONDS

__all__ = ["cases"]


cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("Supported protocol version", "An authentification is answered with four bytes")
def the_server_offers_versions(context: CaseContext) -> None:
    peer = context.open(LamaPeer)
    peer.send(authentication(b"conform")).offered()
    peer.expect_silence("four bytes and nothing more")


@cases.rule("Authentification", "An identity key may follow the name")
def a_key_may_follow_the_name(context: CaseContext) -> None:
    context.open(LamaPeer).send(authentication(b"conform", b"key")).offered()


@cases.rule("Authentification", "A name may arrive byte by byte")
def a_name_arrives_byte_by_byte(context: CaseContext) -> None:
    context.open(LamaPeer).send_each(authentication(b"conform")).offered()


@cases.rule("Authentification", "An auth_method other than 0 gets no offer")
def another_method_gets_no_offer(context: CaseContext) -> None:
    context.open(LamaPeer).send(authentication(b"conform")).offered()
    peer = context.open(LamaPeer)
    peer.send(b"\x01" + counted(b"conform"))
    try:
        if peer.is_closed(seconds_max=CONFORM_SILENCE_SECONDS):
            return
    except Failed:
        return  # a server may wait for more
    peer.expect(bytes(4), 1)


@cases.rule("Choose the protocol version to use", "The highest version offered can be chosen")
def the_highest_version_can_be_chosen(context: CaseContext) -> None:
    client(context).ask(push(1, context.topic()))


@cases.rule("Choose the protocol version to use", "The lowest version offered can be chosen")
def the_lowest_version_can_be_chosen(context: CaseContext) -> None:
    peer = context.open(LamaPeer)
    offer = peer.send(authentication(b"conform")).offered()
    peer.send(offer[2:]).ask(push(1, context.topic()))


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("Supported protocol version", "The server offers version 1.0 alone")
def the_server_offers_version_1_0(context: CaseContext) -> None:
    context.open(LamaPeer).send(authentication(b"conform")).expect(OFFER)


@cases.profile("Authentification", "A client may join with or without a key, in either byte order")
def a_client_may_have_a_key(context: CaseContext) -> None:
    for order, key in context.each(
        [(order, key) for order in (BIG, LITTLE) for key in (None, b"", b"k3y", bytes(4096))]
    ):
        peer = context.open(LamaPeer)
        peer.order = order
        peer.join(b"meter-3", key).settle()


@cases.profile("Authentification", "A key may arrive after the name, in either byte order")
def a_key_may_arrive_after_the_name(context: CaseContext) -> None:
    for order, key in context.each(
        [(order, key) for order in (BIG, LITTLE) for key in (b"", b"k3y", bytes(4096))]
    ):
        peer = context.open(LamaPeer)
        peer.order = order
        peer.send(authentication(b"abc", order=order)).expect(OFFER)
        peer.send(counted(key, order=order)).expect_silence("no answer to a key")
        peer.send(CHOICE).settle()


@cases.profile("Authentification", "A key may arrive byte by byte, in either byte order")
def a_key_arrives_byte_by_byte(context: CaseContext) -> None:
    for order in context.each((BIG, LITTLE)):
        peer = context.open(LamaPeer)
        peer.order = order
        peer.send_each(authentication(b"abc", b"k3y", order=order)).expect(OFFER)
        peer.send_each(CHOICE).settle()


@cases.profile("Authentification", "A handshake may arrive byte by byte, in either byte order")
def a_handshake_arrives_byte_by_byte(context: CaseContext) -> None:
    for order in context.each((BIG, LITTLE)):
        peer = context.open(LamaPeer)
        peer.order = order
        peer.send_each(authentication(b"slow", order=order)).expect(OFFER)
        peer.send_each(CHOICE).settle()


@cases.profile(
    "Choose the protocol version to use", "A version not offered gets error 2 and closes"
)
def a_version_not_offered_is_refused(context: CaseContext) -> None:
    for version in context.each((b"\x00\x09", b"\x01\x01", b"\x02\x00", b"\x09\x09")):
        peer = context.open(LamaPeer).send(authentication(b"conform"))
        peer.expect(OFFER)
        text = peer.send(version + push(1, b"a")).expect_answer(0, BAD_REQUEST)
        check(b"was not offered" in text, "a text with 'was not offered'", text)
        peer.expect_close()


@cases.profile(
    "Authentification", "An unknown method gets error 2 and closes", requires=Setup.PINNED
)
def an_unknown_method_is_refused(context: CaseContext) -> None:
    for first in context.each((b"\x07" + counted(b"c"), b"\xfe\xca\x01", b"\xfa", b"GET / ")):
        peer = context.open(LamaPeer).send(first)
        check(peer.expect_answer(0, BAD_REQUEST), "a text that says what is wrong", "no text")
        peer.expect_close()


@cases.profile("Authentification", "A wrong authentification gets error 2 and closes")
def a_wrong_authentification_is_refused(context: CaseContext) -> None:
    for first in context.each(
        (
            b"\x00" + counted(b""),
            b"\x00" + counted(b"\xff"),
            b"\x00" + counted(b"c") + struct.pack(">I", 4097),
            b"\x00" + struct.pack(">I", 1025),
            b"\x00" + struct.pack(">I", 0xFFFF_FFFF),
            b"\x00HTTP",
        )
    ):
        peer = context.open(LamaPeer).send(first)
        check(peer.expect_answer(0, BAD_REQUEST), "a text that says what is wrong", "no text")
        peer.expect_close()


@cases.profile("Authentification", "An empty name gets error 2 and closes")
def an_empty_name_is_refused(context: CaseContext) -> None:
    peer = context.open(LamaPeer).send(authentication(b""))
    peer.expect_text(0, BAD_REQUEST, b"bad request: the identity name is empty")
    peer.expect_close()


@cases.profile(
    "Authentification",
    "A server that requires credentials answers with error 2 and closes",
    requires=Setup.CREDENTIALS,
)
def without_credentials_a_client_is_refused(context: CaseContext) -> None:
    peer = context.open(LamaPeer).send(authentication(b"meter-3"))
    peer.expect_text(0, BAD_REQUEST, b"identity refused")
    peer.expect_close()


@cases.profile(
    "Errors: Server exception",
    "A full server answers with error 1 and closes",
    requires=Setup.ONE_SESSION,
)
def a_full_server_refuses(context: CaseContext) -> None:
    first = client(context).settle()
    second = client(context)
    second.expect_text(0, SERVER_EXCEPTION, b"the limit of 1 clients is reached")
    second.expect_close()
    first.settle()


@cases.profile(
    "Handshake",
    "A handshake that does not end in time gets error 2 and closes",
    requires=Setup.SHORT_HANDSHAKE,
)
def a_handshake_that_does_not_end_is_refused(context: CaseContext) -> None:
    for rest in context.each((b"", CHOICE[:1])):
        peer = context.open(LamaPeer).send(authentication(b"conform"))
        peer.expect(OFFER)
        text = peer.send(rest).expect_answer(0, BAD_REQUEST)
        check(text, "a text that says what is wrong", "no text")
        peer.expect_close()


@cases.profile("Basic types", "A little-endian client is answered in its order")
def a_little_endian_client_is_answered(context: CaseContext) -> None:
    client(context, order=LITTLE).ask(push(0x0102_0304, context.topic(), order=LITTLE))
