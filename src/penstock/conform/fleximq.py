"""Conformance cases of fleximq, by the sections of its specification."""

import struct
from typing import Final

from penstock.conform.case import Book, Case
from penstock.conform.fleximq_peer import (
    BCAST,
    BROKER,
    JOIN,
    NOTIF,
    PING,
    PUB,
    REP,
    REQ,
    STAMP,
    SUB,
    UNSUB,
    FleximqPeer,
    Header,
    correlation,
    frame,
    joined,
    keepalive,
    request,
    routing,
)
from penstock.conform.peer import Failed, spelled
from penstock.conform.stage import Stage

__all__ = ["CASES"]

HELLO: Final = b"\xa5hello"
NOBODY: Final = 4_000_000_000

FLEXIMQ: Final[Book[[]]] = Book()

# --- Joining --------------------------------------------------------------------------------------


@FLEXIMQ.case("4.2", "JOIN is answered by a REP with the client id that the broker assigned")
def join_is_answered(stage: Stage) -> None:
    joined(stage)


@FLEXIMQ.case("4.1.2", "Client ids are unique, and from 1000 to 4294967294")
def client_ids_are_unique(stage: Stage) -> None:
    peers = [joined(stage) for _ in range(3)]
    found = {peer.number for peer in peers}
    if len(found) < 3:
        raise peers[-1].failed("3 client ids that differ", f"{sorted(found)}")


@FLEXIMQ.case("2.2", "JOIN may have an empty map as its header")
def join_may_have_an_empty_map(stage: Stage) -> None:
    stage.open(FleximqPeer).join({})


@FLEXIMQ.case("7.3.1", "Reserved bytes are ignored by the receiver")
def reserved_bytes_are_ignored(stage: Stage) -> None:
    peer = joined(stage)
    peer.send(frame(PING, peer.number, keepalive(), reserved=bytes(range(16))))
    peer.message(9, "that answers PING")


@FLEXIMQ.case("2.1", "A message may arrive byte by byte")
def a_message_arrives_byte_by_byte(stage: Stage) -> None:
    peer = stage.open(FleximqPeer)
    peer.send_each(frame(JOIN, 0))
    peer.message(REP, "that answers JOIN")


# --- Keep-alive -----------------------------------------------------------------------------------


@FLEXIMQ.case("3.7.1", "PING is answered with PONG and the same timestamp")
def ping_is_answered(stage: Stage) -> None:
    peer = joined(stage)
    for timestamp in (0, STAMP, 2**64 - 1):
        peer.settle(timestamp)


@FLEXIMQ.case("3.7.1", "PING may suggest an interval")
def ping_may_suggest_an_interval(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(PING, {"keepalive": {"timestamp": STAMP, "interval": 30}})
    peer.message(9, "that answers PING")


@FLEXIMQ.case("3.7.1", "PONG has no interval")
def pong_has_no_interval(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(PING, {"keepalive": {"timestamp": STAMP, "interval": 30}})
    pong = peer.message(9, "that answers PING")
    if pong.header.get("keepalive") != {"timestamp": STAMP}:
        raise peer.failed(f"a PONG with timestamp {STAMP} alone", spelled(pong.data))


# --- Topics ---------------------------------------------------------------------------------------


@FLEXIMQ.case("3.6", "A subscriber receives what is published to its topic")
def a_message_is_delivered(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    sender.say(PUB, {"topic": stage.name()}, HELLO)
    receiver.published(stage.name(), HELLO, sender.number)


@FLEXIMQ.case("2.3.1", "A payload may be empty")
def an_empty_payload_is_delivered(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    sender.say(PUB, {"topic": stage.name()})
    receiver.published(stage.name(), b"", sender.number)


@FLEXIMQ.case("2.3.1", "A payload of any MessagePack type arrives unchanged")
def all_payload_types_are_delivered(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    for payload in (
        b"\xc0",
        b"\xc3",
        b"\x7f",
        b"\xcb" + struct.pack(">d", 21.5),
        b"\xc4\x02\xff\x00",
        b"\x92\x01\xa1x",
        b"\x81\xa1k\x90",
    ):
        sender.say(PUB, {"topic": stage.name()}, payload)
        receiver.published(stage.name(), payload, sender.number)


@FLEXIMQ.case("2.1", "A payload of 200,000 bytes arrives unchanged")
def a_large_payload_is_delivered(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    payload = b"\xc6" + struct.pack(">I", 200_000) + bytes(range(250)) * 800
    sender.say(PUB, {"topic": stage.name()}, payload)
    receiver.published(stage.name(), payload, sender.number)


@FLEXIMQ.case("3.6", "All subscribers of a topic receive a message")
def all_subscribers_receive(stage: Stage) -> None:
    receivers, sender = [joined(stage).subscribe(stage.name()) for _ in range(3)], joined(stage)
    sender.say(PUB, {"topic": stage.name()}, HELLO)
    for receiver in receivers:
        receiver.published(stage.name(), HELLO, sender.number)


@FLEXIMQ.case("7.3.3", "A subscriber receives nothing of other topics")
def other_topics_are_not_delivered(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name("mine")), joined(stage)
    sender.say(PUB, {"topic": stage.name("other")}, b"\xa3not")
    sender.say(PUB, {"topic": stage.name("mine")}, HELLO)
    receiver.published(stage.name("mine"), HELLO, sender.number)


@FLEXIMQ.case("7.3.3", "Topic names are case-sensitive")
def topics_are_case_sensitive(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name("Topic")), joined(stage)
    sender.say(PUB, {"topic": stage.name("topic")}, b"\xa3not")
    sender.say(PUB, {"topic": stage.name("Topic")}, HELLO)
    receiver.published(stage.name("Topic"), HELLO, sender.number)


@FLEXIMQ.case("7.3.3", "After UNSUB nothing of the topic is delivered")
def unsub_ends_deliveries(stage: Stage) -> None:
    receiver = joined(stage).subscribe(stage.name("a"), stage.name("b"))
    sender = joined(stage)
    receiver.say(UNSUB, {"topic": stage.name("a")}).settle()
    sender.say(PUB, {"topic": stage.name("a")}, b"\xa4gone")
    sender.say(PUB, {"topic": stage.name("b")}, HELLO)
    receiver.published(stage.name("b"), HELLO, sender.number)


@FLEXIMQ.case("7.3.3", "A second SUB to a topic does not deliver twice")
def a_second_sub_changes_nothing(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name(), stage.name()), joined(stage)
    sender.say(PUB, {"topic": stage.name()}, HELLO).settle()
    receiver.published(stage.name(), HELLO, sender.number)
    receiver.settle()


@FLEXIMQ.case("3.6", "Messages of one publisher arrive in their order")
def order_is_kept(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    payloads = [bytes((number,)) for number in range(100)]
    sender.send(
        b"".join(frame(PUB, sender.number, {"topic": stage.name()}, each) for each in payloads)
    )
    for payload in payloads:
        receiver.published(stage.name(), payload, sender.number)


@FLEXIMQ.case("7.4", "Fields that nobody knows are ignored")
def unknown_fields_are_ignored(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    sender.say(PUB, {"topic": stage.name(), "x-later": [1, {"a": None}]}, HELLO)
    receiver.published(stage.name(), HELLO, sender.number)


# --- Requests -------------------------------------------------------------------------------------


@FLEXIMQ.case("3.3", "A request reaches its target and the response its requester")
def a_request_is_answered(stage: Stage) -> None:
    service, client = joined(stage), joined(stage)
    client.say(REQ, routing((service.number, "/unit")) | request("q-1"), HELLO)
    asked = service.message(REQ, "with id q-1")
    if (asked.client_id, asked.identifier, asked.payload) != (client.number, "q-1", HELLO):
        raise service.failed(f"the REQ of client {client.number}", spelled(asked.data))
    answer = routing((client.number, "/unit")) | correlation("q-1") | {"status": 200}
    service.say(REP, answer, b"\xa1C")
    reply = client.message(REP, "with id q-1")
    found = (reply.client_id, reply.identifier, reply.status, reply.payload)
    if found != (service.number, "q-1", 200, b"\xa1C"):
        raise client.failed(f"the REP of client {service.number}", spelled(reply.data))


@FLEXIMQ.case("3.3", "A request carries the path of its routing to the target")
def a_request_carries_its_path(stage: Stage) -> None:
    service, client = joined(stage), joined(stage)
    client.say(REQ, routing((service.number, "/a/path")) | request("q-2"))
    asked = service.message(REQ, "with path /a/path")
    if asked.header.get("routing") != routing((service.number, "/a/path"))["routing"]:
        raise service.failed("routing with path /a/path", spelled(asked.data))


@FLEXIMQ.case("5.1", "A response may report any status")
def a_response_may_report_any_status(stage: Stage) -> None:
    service, client = joined(stage), joined(stage)
    client.say(REQ, routing((service.number, "/")) | request("q-3"))
    service.message(REQ)
    service.say(REP, routing((client.number, "/")) | correlation("q-3") | {"status": 404})
    reply = client.message(REP, "with status 404")
    if reply.status != 404:
        raise client.failed("a REP with status 404", spelled(reply.data))


# --- Notices and broadcasts -----------------------------------------------------------------------


@FLEXIMQ.case("3.4", "A notification reaches all clients of its routing, and no other")
def a_notification_reaches_its_targets(stage: Stage) -> None:
    one, two, other, sender = (joined(stage) for _ in range(4))
    sender.say(NOTIF, routing((one.number, "/a"), (two.number, "/b")), HELLO).settle()
    for receiver in (one, two):
        found = receiver.message(NOTIF)
        if (found.client_id, found.payload) != (sender.number, HELLO):
            raise receiver.failed(f"the NOTIF of client {sender.number}", spelled(found.data))
    other.settle()


@FLEXIMQ.case("3.5", "A broadcast reaches the other clients")
def a_broadcast_reaches_others(stage: Stage) -> None:
    receivers, sender = [joined(stage) for _ in range(2)], joined(stage)
    sender.say(BCAST, b"", HELLO)
    for receiver in receivers:
        found = receiver.message(BCAST)
        if (found.client_id, found.payload) != (sender.number, HELLO):
            raise receiver.failed(f"the BCAST of client {sender.number}", spelled(found.data))


# --- What is refused ------------------------------------------------------------------------------


def not_delivered(stage: Stage, kind: int, header: Header) -> None:
    """Check that a message which breaks the table of 2.2.3 reaches nobody."""
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    extra = {
        field: routing((receiver.number, "/"))["routing"] if field == "routing" else value
        for field, value in header.items()
    }
    sender.say(kind, extra, HELLO)
    receiver.settle()


@FLEXIMQ.case("2.2.3", "A PUB without a topic is not delivered")
def a_pub_without_a_topic_is_not_delivered(stage: Stage) -> None:
    not_delivered(stage, PUB, {})


@FLEXIMQ.case("2.2.3", "A PUB with a reqrep is not delivered")
def a_pub_with_reqrep_is_not_delivered(stage: Stage) -> None:
    not_delivered(stage, PUB, {"topic": stage.name()} | request("q"))


@FLEXIMQ.case("7.3.1", "A BCAST with a routing is not delivered")
def a_bcast_with_routing_is_not_delivered(stage: Stage) -> None:
    not_delivered(stage, BCAST, {"routing": []})


@FLEXIMQ.case("7.3.1", "A REQ with a topic is not delivered")
def a_req_with_a_topic_is_not_delivered(stage: Stage) -> None:
    not_delivered(stage, REQ, {"routing": [], "topic": stage.name()} | request("q"))


@FLEXIMQ.case("7.3.1", "A NOTIF with an empty routing does not end the connection of others")
def an_empty_routing_disturbs_nobody(stage: Stage) -> None:
    other, sender = joined(stage), joined(stage)
    sender.say(NOTIF, {"routing": []}, HELLO)
    other.settle()


@FLEXIMQ.case("3.2", "The first message must be JOIN: another gets no PONG")
def another_first_message_is_refused(stage: Stage) -> None:
    joined(stage)
    peer = stage.open(FleximqPeer)
    peer.send(frame(PING, 0, keepalive()))
    try:
        if peer.is_closed():
            return
    except Failed:
        return  # a broker may wait
    found = peer.take(2, "a REP or NOTIF with an error, or the end")
    if found[1] == 9:
        raise peer.failed("no PONG before JOIN", spelled(found))


@FLEXIMQ.case("1.1", "A version other than 1 is refused")
def another_version_is_refused(stage: Stage) -> None:
    peer = joined(stage)
    peer.send(frame(PING, peer.number, keepalive(), version=2))
    if not peer.is_closed():
        found = peer.take(2, "a REP or NOTIF with an error, or the end")
        if found[1] not in {REP, NOTIF}:
            raise peer.failed("a REP or NOTIF with an error, or the end", spelled(found))


@FLEXIMQ.case("7.3.2", "A client that is cut off inside a message does not disturb others")
def a_cut_client_disturbs_nobody(stage: Stage) -> None:
    receiver, sender = joined(stage).subscribe(stage.name()), joined(stage)
    broken = joined(stage)
    cut = frame(PUB, broken.number, {"topic": stage.name()}, HELLO)[:-2]
    broken.send(cut).close()
    sender.say(PUB, {"topic": stage.name()}, HELLO)
    receiver.published(stage.name(), HELLO, sender.number)


# --- Penstock's profile ---------------------------------------------------------------------------


def refused(peer: FleximqPeer, status: int) -> None:
    """Expect the broker's NOTIF with a status."""
    found = peer.message(NOTIF, f"with status {status}")
    if (found.client_id, found.status) != (BROKER, status):
        raise peer.failed(f"a NOTIF of client 1 with status {status}", spelled(found.data))


@FLEXIMQ.case("4.2", "The reply to JOIN has status 200", profile=True)
def the_reply_to_join_has_status_200(stage: Stage) -> None:
    peer = stage.open(FleximqPeer)
    reply = peer.join()
    if reply.header != {"status": 200}:
        raise peer.failed("a header with status 200 alone", spelled(reply.data))


@FLEXIMQ.case("4.2", "The reply to a JOIN with a reqrep is correlated", profile=True)
def a_join_may_be_correlated(stage: Stage) -> None:
    peer = stage.open(FleximqPeer)
    reply = peer.join(request("j-1"))
    if reply.header.get("reqrep") != correlation("j-1")["reqrep"]:
        raise peer.failed("a REP that correlates j-1", spelled(reply.data))


@FLEXIMQ.case("5.1.4", "A request to a client that is not there gets status 600", profile=True)
def a_request_to_nobody_gets_600(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(REQ, routing((NOBODY, "/")) | request("q-9"))
    reply = peer.message(REP, "with status 600")
    if (reply.status, reply.identifier) != (600, "q-9"):
        raise peer.failed("a REP with status 600 that correlates q-9", spelled(reply.data))


@FLEXIMQ.case("5.1.2", "A missing or forbidden field gets status 400", profile=True)
def a_forbidden_field_gets_400(stage: Stage) -> None:
    peer = joined(stage)
    for kind, header in ((PUB, {}), (SUB, {"topic": "t", "status": 200}), (PING, {})):
        peer.say(kind, header)
        refused(peer, 400)
    peer.settle()


@FLEXIMQ.case("5.1.3", "An unknown type gets status 501", profile=True)
def an_unknown_type_gets_501(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(99)
    refused(peer, 501)


@FLEXIMQ.case("5.1.4", "An empty topic gets status 603", profile=True)
def an_empty_topic_gets_603(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(SUB, {"topic": ""})
    refused(peer, 603)


@FLEXIMQ.case("4.1.1", "Client 1 is the broker: /time answers", profile=True)
def the_broker_tells_the_time(stage: Stage) -> None:
    peer = joined(stage)
    peer.say(REQ, routing((BROKER, "/time")) | request("now"))
    reply = peer.message(REP, "with id now")
    if (reply.client_id, reply.status, reply.identifier) != (BROKER, 200, "now"):
        raise peer.failed("a REP of client 1 with status 200", spelled(reply.data))


CASES: Final[tuple[Case, ...]] = FLEXIMQ.cases()
"""In the order in which they are run."""
