"""fleximq cases of section 2.2: header fields and payloads."""

from typing import Any, Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BCAST,
    BROKER,
    JOIN,
    NAMES,
    NOTIF,
    PING,
    PONG,
    PUB,
    REP,
    REQ,
    SUB,
    UNSUB,
    Ext,
    Header,
    correlation,
    frame,
    keepalive,
    pack,
    request,
    routing,
    status,
    topic,
)
from penstock.conform.fleximq.peer import FleximqPeer, joined, status_of
from penstock.conform.peer import check, equal

__all__ = ["cases"]

HELLO: Final = b"\xa5hello"
FIELDS: Final[Header] = {
    **routing((1, "/time")),
    **request("h-1"),
    **topic("table"),
    **status(200),
    "auth": {"type": "token", "token": "t"},
    **keepalive(1),
}
# The table of the specification: required and optional fields. All others are forbidden. The row of
# JOIN is in joining.py, because it is for clients that have not joined.
TABLE: Final = {
    REQ: ("routing reqrep", "status"),
    REP: ("routing reqrep", "status"),
    NOTIF: ("routing", "status"),
    BCAST: ("", "status"),
    PUB: ("topic", "routing status"),
    SUB: ("topic", ""),
    UNSUB: ("topic", ""),
    PING: ("keepalive", ""),
    PONG: ("keepalive", ""),
}

cases: Final[CaseCollector[[]]] = CaseCollector()


def not_delivered(context: CaseContext, kind: int, header: Header) -> None:
    """Check that a message which breaks the table of 2.2.3 is not delivered."""
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    extra = {
        field: routing((receiver.number, "/"))["routing"] if field == "routing" else value
        for field, value in header.items()
    }
    sender.say(kind, extra, payload=HELLO)
    receiver.settle()


@cases.rule("2.2.3", "A PUB without a topic is not delivered")
def a_pub_without_a_topic_is_not_delivered(context: CaseContext) -> None:
    not_delivered(context, PUB, {})


@cases.rule("2.2.3", "A PUB with a reqrep is not delivered")
def a_pub_with_reqrep_is_not_delivered(context: CaseContext) -> None:
    not_delivered(context, PUB, topic(context.name()) | request("q"))


@cases.rule("7.3.1", "A BCAST with a routing is not delivered")
def a_bcast_with_routing_is_not_delivered(context: CaseContext) -> None:
    not_delivered(context, BCAST, {"routing": []})


@cases.rule("7.3.1", "A REQ with a topic is not delivered")
def a_req_with_a_topic_is_not_delivered(context: CaseContext) -> None:
    not_delivered(context, REQ, {"routing": [], "topic": context.name()} | request("q"))


@cases.rule("7.3.1", "A NOTIF with an empty routing does not end the connection of others")
def an_empty_routing_disturbs_no_other(context: CaseContext) -> None:
    other, sender = joined(context), joined(context)
    sender.say(NOTIF, {"routing": []}, payload=HELLO)
    other.settle()


# --- Penstock's profile ---------------------------------------------------------------------------


def values(kind: int, names: set[str]) -> Header:
    """Return the fields of these names."""
    fields = FIELDS | (correlation("h-1") if kind == REP else {})
    return {name: fields[name] for name in fields if name in names}


def faults() -> list[tuple[str, int, set[str]]]:
    """Return all messages that lack one field or have one too many: label, type, fields."""
    found = []
    for kind, (required, optional) in TABLE.items():
        needed = set(required.split())
        for name in FIELDS:
            if name in needed:
                found.append((f"{NAMES[kind]} without {name}", kind, needed - {name}))
            elif name not in optional.split():
                found.append((f"{NAMES[kind]} with {name}", kind, needed | {name}))
    return found


@cases.profile("2.2.3", "A missing or forbidden field gets status 400 and the connection goes on")
def a_missing_or_forbidden_field_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    for _, kind, names in context.each(faults()):
        peer.say(kind, values(kind, names))
        if "reqrep" in names:
            peer.expect_refusal(400, "h-1")
        else:
            peer.expect_notice(400)
        peer.settle()


@cases.profile("2.2.3", "Required and optional fields never get status 400")
def required_and_optional_fields_are_accepted(context: CaseContext) -> None:
    peer = joined(context)
    for kind in context.each(TABLE):
        required, optional = (set(part.split()) for part in TABLE[kind])
        for names in (required, required | optional):
            peer.say(kind, values(kind, names))
            peer.say(PING, keepalive(7))
            while (found := peer.frame()).header != keepalive(7):
                check(status_of(found) != 400, "a status other than 400", found)


@cases.profile("2.2.1", "A header that cannot be read gets status 400")
def an_unreadable_header_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    for kind, header in context.each(
        (
            (SUB, b"\xc1"),
            (SUB, b"\x91\xa1a"),
            (SUB, pack({"topic": 5})),
            (SUB, pack({"topic": None})),
            (SUB, b"\x82" + 2 * (pack("topic") + pack("t"))),
            (SUB, pack({"topic": "t"}) + b"\xc0"),
            (PUB, pack({"topic": "t", "status": -1})),
            (PUB, pack({"topic": "t", "status": 65_536})),
            (PING, pack({"keepalive": {}})),
            (PING, pack({"keepalive": {"timestamp": "now"}})),
            (PONG, pack(keepalive(1, interval=30))),
        )
    ):
        peer.send(frame(kind, peer.number, header)).expect_notice(400)
        peer.settle()


@cases.profile("2.2.2", "A REQ with another reqrep type gets status 400 under its id")
def a_wrong_reqrep_type_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    for reqrep in context.each(
        ({"id": "h-1"}, {"type": "correlation", "id": "h-1"}, {"type": "x", "id": "h-1"})
    ):
        peer.say(REQ, routing((BROKER, "/time")), {"reqrep": reqrep})
        peer.expect_refusal(400, "h-1")
        peer.settle()


@cases.profile("5.1.4", "Routing of a REQ that is malformed or not one entry gets status 602")
def malformed_routing_gets_602(context: CaseContext) -> None:
    peer = joined(context)
    entries: tuple[Any, ...] = (
        [],
        {},
        [{"client_id": 1}],
        [{"client_id": -1, "path": "/"}],
        [{"client_id": 2**32, "path": "/"}],
        [{"client_id": 1, "path": 5}],
        2 * [{"client_id": 1, "path": "/time"}],
    )
    for entry in context.each(entries):
        peer.say(REQ, {"routing": entry}, request("h-2"))
        peer.expect_refusal(602, "h-2")
        peer.settle()


@cases.profile("5.1.4", "A NOTIF with no routing entry, or over 1024, gets status 602")
def a_notice_without_a_target_gets_602(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(NOTIF, {"routing": []})
    peer.expect_notice(602)
    peer.say(NOTIF, routing(*1025 * [(1, "")]))
    peer.expect_notice(602)
    peer.settle()


@cases.profile("2.3.1", "A payload that is not one MessagePack value gets status 400")
def a_malformed_payload_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    for kind in (PUB, NOTIF, BCAST):
        needed = set(TABLE[kind][0].split())
        for payload in context.each((b"\xc1", b"\xa2x", b"\x01\x02", b"\x91", b"\xa1\xff")):
            peer.say(kind, values(kind, needed), payload=payload)
            peer.expect_notice(400)
            peer.settle()


@cases.profile("5.1.3", "An unknown type gets status 501")
def an_unknown_type_gets_501(context: CaseContext) -> None:
    peer = joined(context)
    for kind in context.each((10, 99, 255)):
        peer.send(frame(kind, peer.number)).expect_notice(501)
        peer.send(frame(kind, peer.number, request("h-3"))).expect_refusal(501, "h-3")
        peer.settle()


@cases.profile("2.2.1", "Unknown fields of a PING are ignored")
def unknown_fields_of_a_ping_are_ignored(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PING, keepalive(11) | {"colour": ["blue", Ext(5, b"x")]})
    equal(peer.message(PONG).header, keepalive(11))


@cases.profile("2.2.2", "A fault of a REQ whose id has over 1024 bytes gets a NOTIF")
def a_fault_under_a_long_id_gets_a_notice(context: CaseContext) -> None:
    peer = joined(context)
    for size in context.each((1025, 65_000)):
        peer.say(REQ, request("x" * size))
        peer.expect_notice(400)
        peer.say(REQ, routing((BROKER, "/time")), request("x" * size))
        peer.expect_notice(400)
    peer.settle()


@cases.profile("7.4", "A REQ whose path is not UTF-8 gets status 400 under its id")
def a_path_that_is_not_utf8_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    entry = b"\x82\xa9client_id\x01\xa4path\xa2/\xff"
    reqrep = b"\xa6reqrep" + pack({"type": "request", "id": "h-4"})
    for header in context.each(
        (
            b"\x82\xa7routing\x91" + entry + reqrep,
            b"\x82" + reqrep + b"\xa7routing\x91" + entry,
        )
    ):
        peer.send(frame(REQ, peer.number, header)).expect_refusal(400, "h-4")
        peer.settle()


def nil_headers(peer: FleximqPeer) -> tuple[tuple[int, Header], ...]:
    """Return headers, each with a field whose value is nil."""
    return (
        (REQ, routing((BROKER, "/time")) | request("h-5") | {"status": None}),
        (REQ, routing((BROKER, "/time")) | request("h-5") | {"topic": None, "auth": None}),
        (PING, {"keepalive": {"timestamp": 5, "interval": None}}),
        (PING, keepalive(5) | {"routing": None}),
        (PUB, topic("nil") | {"status": None, "routing": None}),
        (NOTIF, routing((peer.number, "/")) | {"reqrep": None}),
    )


@cases.profile("2.2.1", "A header field whose value is nil counts as absent")
def a_nil_field_is_absent(context: CaseContext) -> None:
    peer = joined(context).subscribe("nil")
    expected = {REQ: REP, PING: PONG, PUB: PUB, NOTIF: NOTIF}
    for kind, header in context.each(nil_headers(peer)):
        peer.say(kind, header)
        equal(status_of(peer.message(expected[kind])) or 200, 200, "a status of")
    peer.say(PUB, {"topic": None})
    peer.expect_notice(400)
    peer.settle()


@cases.profile(
    "2.2.1", "A strict broker refuses a header field whose value is nil", requires=Setup.STRICT
)
def a_nil_field_is_refused_by_a_strict_broker(context: CaseContext) -> None:
    peer = joined(context).subscribe("nil")
    for kind, header in context.each(nil_headers(peer)):
        peer.say(kind, header)
        if kind == REQ:
            peer.expect_refusal(400, "h-5")
        else:
            peer.expect_notice(400)
    peer.settle()


@cases.profile("2.3.1", "The number of values in a payload has no limit but its bytes")
def a_payload_of_many_values_is_delivered(context: CaseContext) -> None:
    peer = joined(context).subscribe(context.name())
    small = pack({"id": 1, "name": "sensor"})
    maps = b"\xdd\x00\x01\x86\xa0" + 100_000 * small
    numbers = b"\xdd\x00\x20\x00\x00" + (1 << 21) * b"\x01"
    for payload in (maps, numbers):
        peer.say(PUB, topic(context.name()), payload=payload)
        check(peer.message(PUB).payload == payload, "the payload that was sent", "another")
        peer.say(NOTIF, routing((peer.number, "/")), payload=payload)
        check(peer.message(NOTIF).payload == payload, "the payload that was sent", "another")
    peer.say(PUB, topic(context.name()), payload=maps[:-1])
    peer.expect_notice(400)
    peer.settle()


@cases.profile("2.3.1", "A payload with 65 arrays inside each other gets status 400")
def a_payload_that_is_too_deep_gets_400(context: CaseContext) -> None:
    peer = joined(context).subscribe(context.name())
    for tail in (b"\xc0", pack(5000 * "x")):  # short and long payloads are measured differently
        peer.say(PUB, topic(context.name()), payload=64 * b"\x91" + tail)
        peer.message(PUB)
        peer.say(PUB, topic(context.name()), payload=65 * b"\x91" + tail)
        peer.expect_notice(400)
    peer.settle()


@cases.profile("2.2.2", "A timestamp has 64 bits and an interval 32; another value gets status 400")
def keepalive_values_have_their_range(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PING, keepalive(2**64 - 1, interval=2**32 - 1))
    equal(peer.message(PONG).header, keepalive(2**64 - 1))
    for fields in context.each(
        (
            {"timestamp": -1},
            {"timestamp": 1.0},
            {"timestamp": 1, "interval": -1},
            {"timestamp": 1, "interval": 2**32},
            {"interval": 30},
        )
    ):
        peer.say(PING, {"keepalive": fields})
        peer.expect_notice(400)
    peer.settle()


@cases.profile("7.3.3", "A topic that is not UTF-8 text gets status 400")
def a_topic_that_is_not_text_gets_400(context: CaseContext) -> None:
    peer = joined(context)
    for kind in (PUB, SUB, UNSUB):
        for name in context.each((b"\xa2a\xff", b"\xc4\x01a", b"\x05")):
            peer.send(frame(kind, peer.number, b"\x81\xa5topic" + name)).expect_notice(400)
    peer.settle()


@cases.profile("2.3.1", "Messages that need no payload may have one")
def any_message_may_have_a_payload(context: CaseContext) -> None:
    peer = context.open(FleximqPeer).send(frame(JOIN, 0, b"", HELLO))
    peer.number = peer.message(REP).client_id
    peer.say(SUB, topic(context.name()), payload=HELLO)
    peer.say(PONG, keepalive(1), payload=HELLO)
    peer.say(PING, keepalive(2), payload=HELLO)
    equal(peer.message(PONG).header, keepalive(2))
    peer.expect(peer.say(PUB, topic(context.name()), payload=HELLO))
    peer.say(UNSUB, topic(context.name()), payload=HELLO)
    peer.say(PUB, topic(context.name()))
    peer.settle()
