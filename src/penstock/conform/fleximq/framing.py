"""fleximq cases of sections 2.1 and 7.1: frames and their limits."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BCAST,
    BROKER,
    JOIN,
    NOTIF,
    PING,
    PONG,
    PUB,
    REP,
    REQ,
    SUB,
    frame,
    keepalive,
    pack,
    request,
    routing,
    status,
    topic,
)
from penstock.conform.fleximq.peer import STAMP, FleximqPeer, joined
from penstock.conform.peer import equal, in_hex

__all__ = ["cases"]

HELLO: Final = b"\xa5hello"
HEADER_BYTES_MAX: Final = 65_536
TOPIC_BYTES_MAX: Final = 65_526
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("1.1", "A version other than 1 is refused")
def another_version_is_refused(context: CaseContext) -> None:
    peer = joined(context)
    peer.send(frame(PING, peer.number, keepalive(STAMP), version=2))
    if not peer.is_closed():
        found = peer.take(2, "a REP or NOTIF with an error, or the end")
        if found[1] not in {REP, NOTIF}:
            raise peer.failed("a REP or NOTIF with an error, or the end", in_hex(found))


@cases.rule("7.3.2", "A client that is cut off inside a message does not disturb others")
def a_cut_client_disturbs_no_other(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    broken = joined(context)
    cut = frame(PUB, broken.number, topic(context.name()), HELLO)[:-2]
    broken.send(cut).close()
    sender.say(PUB, topic(context.name()), payload=HELLO)
    receiver.published(context.name(), HELLO, sender.number)


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("7.1", "A header above 64 KiB gets status 413 and closes")
def a_header_above_64_kib_gets_413(context: CaseContext) -> None:
    for size in context.each((65_537, 2**32 - 1)):
        peer = joined(context)
        peer.send(struct.pack(">BBI16xI", 1, PUB, peer.number, size)).expect_notice(413)
        peer.expect_close()


@cases.profile("7.1", "A JOIN with a header above 64 KiB gets a REP with status 413 and closes")
def a_join_above_64_kib_gets_413(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(struct.pack(">BBI16xI", 1, JOIN, 0, 65_537))
    peer.reply(REP, 0, status(413))
    peer.expect_close()


@cases.profile("7.1", "A message above 16 MiB gets status 413 before its bytes come, and closes")
def a_message_above_the_limit_gets_413(context: CaseContext) -> None:
    for payload_bytes in context.each((MESSAGE_BYTES_MAX, 2**64 - 1)):
        peer = joined(context)
        head = frame(PUB, peer.number, topic("t"))[:-8]
        peer.send(head + struct.pack(">Q", payload_bytes)).expect_notice(413)
        peer.expect_close()


@cases.profile("7.1", "A REQ above 16 MiB gets status 413 under its id, and closes")
def a_request_above_the_limit_gets_413(context: CaseContext) -> None:
    peer = joined(context)
    head = frame(REQ, peer.number, routing((BROKER, "/time")) | request("big"))[:-8]
    peer.send(head + struct.pack(">Q", MESSAGE_BYTES_MAX)).expect_refusal(413, "big")
    peer.expect_close()


@cases.profile("1.1", "Another version gets status 501 and closes")
def another_version_gets_501(context: CaseContext) -> None:
    peer = joined(context)
    peer.send(frame(PING, peer.number, keepalive(1), version=2)).expect_notice(501)
    peer.expect_close()


@cases.profile("7.3.1", "Messages before the one that cannot be read have their effect")
def messages_before_a_loss_have_their_effect(context: CaseContext) -> None:
    peer, other = joined(context), joined(context).subscribe(context.name())
    message = frame(PUB, peer.number, topic(context.name()), b"\x01")
    peer.send(message + b"\x02" + message)
    other.expect(message)
    peer.expect_notice(501)
    peer.expect_close()
    other.settle()


@cases.profile("7.3.2", "A client whose bytes cannot be read does not disturb others")
def an_unreadable_client_disturbs_no_other(context: CaseContext) -> None:
    witness = joined(context)
    for garbage in context.each((b"\x02", b"\xff" * 100, bytes(100))):
        peer = joined(context).send(garbage)
        peer.expect_notice(501)
        peer.expect_close()
    witness.settle()


@cases.profile("7.1", "The largest header and the smallest message are accepted")
def the_largest_header_is_accepted(context: CaseContext) -> None:
    peer = joined(context)
    room = HEADER_BYTES_MAX - len(pack(keepalive(9))) - len(pack("pad"))
    header = pack(keepalive(9) | {"pad": bytes(room - 3)})
    equal(len(header), HEADER_BYTES_MAX, "header size")
    peer.send(frame(PING, peer.number, header))
    equal(peer.message(PONG).header, keepalive(9))
    peer.send(frame(BCAST, peer.number)).message(BCAST)


@cases.profile("7.3.3", "A topic may have 65,526 bytes, as many as a header has room for")
def the_longest_topic_is_delivered(context: CaseContext) -> None:
    peer = joined(context)
    name = context.name().ljust(TOPIC_BYTES_MAX, "x")
    header = pack(topic(name))
    equal(len(header), HEADER_BYTES_MAX, "header size")
    peer.send(frame(SUB, peer.number, header)).settle()
    peer.send(frame(PUB, peer.number, header, HELLO)).published(name, HELLO, peer.number)
