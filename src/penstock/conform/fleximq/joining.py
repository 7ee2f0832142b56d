"""fleximq cases of section 4: JOIN, client ids and authentication."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
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
    Header,
    correlation,
    frame,
    keepalive,
    request,
    routing,
    status,
    topic,
)
from penstock.conform.fleximq.peer import STAMP, FleximqPeer, identifier_of, joined, status_of
from penstock.conform.peer import Failed, check, equal, in_hex

__all__ = ["cases"]

AUTHS: Final = (
    {"type": "token", "token": "t"},
    {"type": "basic", "username": "u", "password": "p"},
    {"type": "api_key", "api_key": "k"},
)

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("4.2", "JOIN is answered by a REP with the client id that the broker assigned")
def join_is_answered(context: CaseContext) -> None:
    joined(context)


@cases.rule("4.1.2", "Client ids are unique, and from 1000 to 4294967294")
def client_ids_are_unique(context: CaseContext) -> None:
    peers = [joined(context) for _ in range(3)]
    found = {peer.number for peer in peers}
    if len(found) < 3:
        raise peers[-1].failed("3 client ids that differ", f"{sorted(found)}")


@cases.rule("2.2", "JOIN may have an empty map as its header")
def join_may_have_an_empty_map(context: CaseContext) -> None:
    context.open(FleximqPeer).join({})


@cases.rule("7.3.1", "Reserved bytes are ignored by the receiver")
def reserved_bytes_are_ignored(context: CaseContext) -> None:
    peer = joined(context)
    peer.send(frame(PING, peer.number, keepalive(STAMP), reserved=bytes(range(16))))
    peer.message(PONG, "that answers PING")


@cases.rule("2.1", "A message may arrive byte by byte")
def a_message_arrives_byte_by_byte(context: CaseContext) -> None:
    peer = context.open(FleximqPeer)
    peer.send_each(frame(JOIN, 0))
    peer.message(REP, "that answers JOIN")


@cases.rule("3.2", "The first message must be JOIN: another gets no PONG")
def another_first_message_is_refused(context: CaseContext) -> None:
    joined(context)
    peer = context.open(FleximqPeer)
    peer.send(frame(PING, 0, keepalive(STAMP)))
    try:
        if peer.is_closed():
            return
    except Failed:
        return  # a broker may wait
    found = peer.take(2, "a REP or NOTIF with an error, or the end")
    if found[1] == PONG:
        raise peer.failed("no PONG before JOIN", in_hex(found))


# --- Penstock's profile ---------------------------------------------------------------------------


def refused_join(context: CaseContext, data: bytes, header: Header) -> FleximqPeer:
    """Send a first message, and expect a REP of client 0 with this header."""
    peer = context.open(FleximqPeer)
    peer.send(data)
    peer.reply(REP, 0, header)
    return peer


@cases.profile("4.2", "The reply to JOIN is a REP with status 200, and these bytes")
def the_reply_to_join_to_the_byte(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(bytes.fromhex("01 00 00000000") + bytes(16 + 4 + 8))
    header = bytes.fromhex("81 A6 737461747573 CC C8")  # {"status": 200}
    peer.expect(b"\x01\x02", 4, bytes(16) + struct.pack(">I", 10) + header + bytes(8))


@cases.profile("4.1.2", "The ids of clients that left are not assigned again at once")
def client_ids_are_not_reused_at_once(context: CaseContext) -> None:
    numbers = []
    for _ in range(5):
        pair = [joined(context), joined(context)]
        numbers += [peer.number for peer in pair]
        for peer in pair:
            peer.close()
    equal(len(set(numbers)), 10, "a number of different client ids of")


@cases.profile("4.1.2", "A restart assigns no client id again", requires=Setup.RESTART)
def a_restart_assigns_no_client_id_again(context: CaseContext) -> None:
    found: set[int] = set()
    for run in context.each(range(1, 4)):
        found |= {joined(context).number for _ in range(3)}
        check(len(found) == 3 * run, f"{3 * run} different client ids", len(found))
        context.restart()


@cases.profile("6.4", "A program may send JOIN, and keeps its id", requires=Setup.PROGRAM)
def a_program_that_joins_keeps_its_id(context: CaseContext) -> None:
    peer = joined(context)
    equal(peer.join(request("j1")).client_id, peer.number, "client id")
    equal(identifier_of(peer.join(request("j2"))), "j2", "reqrep.id")
    peer.subscribe(context.name("a"))
    peer.expect(peer.say(PUB, topic(context.name("a")), payload=b"\x01"))


@cases.profile("6.4", "A program need not send JOIN", requires=Setup.PROGRAM)
def a_program_need_not_join(context: CaseContext) -> None:
    peer = context.open(FleximqPeer)
    peer.send(frame(SUB, 999, topic(context.name("a"))))
    peer.number = peer.message(NOTIF).header["routing"][0]["client_id"]
    check(peer.number >= 1000, "a client id from 1000 up", peer.number)
    peer.subscribe(context.name("a"))
    peer.expect(peer.say(PUB, topic(context.name("a")), payload=b"\x01"))


@cases.profile("4.2", "The reply to a JOIN with a reqrep is correlated")
def a_join_may_be_correlated(context: CaseContext) -> None:
    peer = context.open(FleximqPeer)
    reply = peer.join(request("j-1"))
    equal(reply.header, correlation("j-1") | status(200))


@cases.profile("5.2", "Credentials are accepted where none are required")
def credentials_are_accepted_where_none_are_required(context: CaseContext) -> None:
    for auth in context.each(AUTHS):
        reply = context.open(FleximqPeer).join({"auth": auth})
        equal(reply.header, status(200))


@cases.profile(
    "5.1.2",
    "JOIN without valid credentials gets status 401 and closes",
    requires=Setup.CREDENTIALS,
)
def without_credentials_join_gets_401(context: CaseContext) -> None:
    for header in context.each(({}, *({"auth": auth} for auth in AUTHS))):
        refused_join(context, frame(JOIN, 0, header), status(401)).expect_close()


@cases.profile("5.1.4", "JOIN with malformed or unknown credentials gets status 604 and closes")
def malformed_credentials_get_604(context: CaseContext) -> None:
    for auth in context.each(
        (
            {"type": "kerberos"},
            {"type": "token"},
            {"type": "basic", "username": "u"},
            {"type": "api_key", "token": "t"},
            {},
            "token",
        )
    ):
        peer = context.open(FleximqPeer).send(frame(JOIN, 0, {"auth": auth} | request("j-2")))
        reply = peer.reply(REP, 0, correlation("j-2") | status(604))
        check(isinstance(peer.value(reply), str), "a text that says what is wrong", peer.data)
        peer.expect_close()


@cases.profile(
    "5.1.4", "JOIN gets status 605 and closes when the broker is full", requires=Setup.ONE_SESSION
)
def a_full_broker_gives_605(context: CaseContext) -> None:
    joined(context)
    refused_join(context, frame(JOIN, 0), status(605)).expect_close()


@cases.profile("5.1.2", "A second JOIN gets status 409 and the connection goes on")
def a_second_join_gets_409(context: CaseContext) -> None:
    peer = joined(context)
    peer.send(frame(JOIN, 0)).expect_notice(409)
    peer.send(frame(JOIN, 0, request("again"))).expect_refusal(409, "again")
    peer.settle()


@cases.profile("2.2.3", "JOIN with a forbidden field gets status 400 and may be sent again")
def a_join_with_a_forbidden_field_gets_400(context: CaseContext) -> None:
    for field in context.each((routing((1, "")), topic("t"), keepalive(1), status(200))):
        peer = refused_join(context, frame(JOIN, 0, field), status(400))
        equal(peer.join().header, status(200))


@cases.profile(
    "4.2",
    "JOIN under an id other than 0 gets status 400 and may be sent again",
)
def a_join_under_another_id_gets_400(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(JOIN, 7))
    equal(peer.message(REP).header, status(400))
    equal(peer.join().header, status(200))


@cases.profile("3.2", "A message before JOIN gets status 401 and closes")
def a_message_before_join_gets_401(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(PUB, 1000, topic("t")))
    peer.expect_notice(401)
    peer.expect_close()


@cases.profile("3.2", "A request before JOIN gets a REP with status 401 and closes")
def a_request_before_join_gets_401(context: CaseContext) -> None:
    data = frame(REQ, 1000, routing((1, "/time")) | request("q-1"))
    refused_join(context, data, correlation("q-1") | status(401)).expect_close()


@cases.profile("3.2", "A malformed message before JOIN gets its status and closes")
def a_malformed_message_before_join_gets_400(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(SUB, 1000))
    peer.expect_notice(400)
    peer.expect_close()


@cases.profile("1.1", "Another version before JOIN gets status 501 and closes")
def another_version_before_join_gets_501(context: CaseContext) -> None:
    refused_join(context, frame(JOIN, 0, version=2), status(501)).expect_close()


@cases.profile("2.2.2", "A JOIN whose id has over 1024 bytes gets status 400 and may be sent again")
def a_join_with_a_long_id_gets_400(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(JOIN, 0, request("x" * 1025)))
    equal(peer.message(REP).header, status(400))
    equal(peer.join(request("x" * 1024)).header, correlation("x" * 1024) | status(200))


@cases.profile("4.1.2", "A message under another client's id gets status 403 and has no effect")
def a_message_under_another_id_gets_403(context: CaseContext) -> None:
    peer, other = joined(context), joined(context)
    other.subscribe(context.name())
    peer.send(frame(PUB, other.number, topic(context.name()), b"\x01")).expect_notice(403)
    peer.send(frame(REQ, other.number, routing((1, "/time")) | request("q")))
    peer.expect_refusal(403, "q")
    peer.send(frame(BCAST, 1)).expect_notice(403)
    peer.settle()
    other.settle()


@cases.profile("4.1.1", "A message under id 0 gets status 400")
def a_message_under_id_0_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    peer.send(frame(PUB, 0, topic("t"))).expect_notice(400)
    peer.settle()


@cases.profile(
    "4.2", "A connection without a JOIN gets status 408 and closes", requires=Setup.SHORT_HANDSHAKE
)
def a_join_that_does_not_come_gets_408(context: CaseContext) -> None:
    for start in context.each((frame(JOIN, 0)[:1], frame(JOIN, 0)[:-1])):
        refused_join(context, start, status(408)).expect_close()


@cases.profile("4.2", "JOIN and the next message may come in one write", requires=Setup.PINNED)
def join_and_the_next_message_in_one_write(context: CaseContext) -> None:
    number = joined(context).number + 1
    peer = context.open(FleximqPeer).send(frame(JOIN, 0) + frame(PING, number, keepalive(5)))
    equal(peer.message(REP).client_id, number, "client id")
    equal(peer.message(PONG).header, keepalive(5))


@cases.profile("7.3.1", "Reserved bytes of a JOIN are ignored")
def reserved_bytes_of_a_join_are_ignored(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(JOIN, 0, reserved=b"\xff" * 16))
    equal(peer.message(REP).header, status(200))


@cases.profile(
    "2.2.3", "A strict server refuses reqrep in a JOIN and takes a plain one", requires=Setup.STRICT
)
def a_strict_server_refuses_reqrep_in_join(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(JOIN, 0, request("j-1")))
    equal(status_of(peer.message(REP)), 400, "status")
    equal(peer.join().header, status(200))


@cases.profile("5.1.2", "A PUB above the rate gets status 429", requires=Setup.RATE)
def a_publish_above_the_rate_gets_429(context: CaseContext) -> None:
    peer = joined(context)
    for _ in range(30):
        peer.say(PUB, topic("t"))
    peer.expect_notice(429)


@cases.profile("5.1.2", "A REQ above the rate gets a REP with status 429", requires=Setup.RATE)
def a_request_above_the_rate_gets_429(context: CaseContext) -> None:
    peer = joined(context)
    for number in range(30):
        peer.say(REQ, routing((BROKER, "/time")), request(f"r{number}"))
    answers = [peer.message(REP) for _ in range(30)]
    equal([identifier_of(answer) for answer in answers], [f"r{n}" for n in range(30)], "ids")
    statuses = [status_of(answer) for answer in answers]
    equal(statuses[:10], [200] * 10, "the first statuses")
    check(429 in statuses[10:], "429 among the other statuses", statuses[10:])
