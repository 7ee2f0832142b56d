"""fleximq cases of section 3.6: PUB, SUB and UNSUB."""

import struct
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BROKER,
    PING,
    PONG,
    PUB,
    SUB,
    UNSUB,
    Frame,
    frame,
    keepalive,
    pack,
    routing,
    status,
    topic,
)
from penstock.conform.fleximq.peer import FleximqPeer, joined
from penstock.conform.peer import check, equal

__all__ = ["cases"]

HELLO: Final = b"\xa5hello"
STARTS: Final = ("@earliest", "@-15m", "@#7", "@2026-11-01T00:00:00Z", "@last", "@group=x")
NEARLY_STARTS: Final = {
    "@ealiest": "did you mean @earliest?",
    "@-15min": "did you mean @-15m?",
    "@lats": "did you mean @last?",
    "@gruop=x": "did you mean @group=x?",
    "@group=x,ealiest": "did you mean @group=x,earliest?",
}
FORMATS: Final = {
    "nothing": b"",
    "nil": b"\xc0",
    "false": b"\xc2",
    "true": b"\xc3",
    "positive fixint": b"\x7f",
    "negative fixint": b"\xe0",
    "uint 8": b"\xcc\x01",  # longer than needed, and delivered so
    "uint 16": b"\xcd\x00\x01",
    "uint 32": b"\xce\x00\x00\x00\x01",
    "uint 64": b"\xcf" + b"\xff" * 8,
    "int 8": b"\xd0\x80",
    "int 16": b"\xd1\x80\x00",
    "int 32": b"\xd2\x80\x00\x00\x00",
    "int 64": b"\xd3\x80" + bytes(7),
    "float 32": b"\xca\x7f\xc0\x00\x01",
    "float 64": b"\xcb\x7f\xf8" + bytes(5) + b"\x01",
    "fixstr": b"\xa2hi",
    "str 8": b"\xd9\x02hi",
    "str 16": b"\xda\x00\x02hi",
    "str 32": b"\xdb\x00\x00\x00\x02hi",
    "bin 8": b"\xc4\x02\x00\xff",
    "bin 16": b"\xc5\x00\x02\x00\xff",
    "bin 32": b"\xc6\x00\x00\x00\x02\x00\xff",
    "fixarray": b"\x92\x01\x91\xc0",
    "array 16": b"\xdc\x00\x01\x01",
    "array 32": b"\xdd\x00\x00\x00\x01\x01",
    "fixmap": b"\x82\xa1b\x01\xa1a\x02",
    "map 16": b"\xde\x00\x01\x01\x02",
    "map 32": b"\xdf\x00\x00\x00\x01\xc0\xc0",
    "map with a key twice": b"\x82\x01\x02\x01\x03",
    "fixext 1": b"\xd4\x05x",
    "fixext 2": b"\xd5\x05xx",
    "fixext 4": b"\xd6\xffxxxx",
    "fixext 8": b"\xd7\xff" + b"x" * 8,
    "fixext 16": b"\xd8\x80" + b"x" * 16,
    "ext 8": b"\xc7\x00\x05",
    "ext 16": b"\xc8\x00\x01\x05x",
    "ext 32": b"\xc9\x00\x00\x00\x01\x05x",
    "64 deep": b"\x91" * 64 + b"\xc0",
}

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("3.6", "A subscriber receives messages that are published to its topic")
def a_message_is_delivered(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    sender.say(PUB, topic(context.name()), payload=HELLO)
    receiver.published(context.name(), HELLO, sender.number)


@cases.rule("2.3.1", "A payload may be empty")
def an_empty_payload_is_delivered(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    sender.say(PUB, topic(context.name()))
    receiver.published(context.name(), b"", sender.number)


@cases.rule("2.3.1", "A payload of any MessagePack type arrives unchanged")
def all_payload_types_are_delivered(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    for payload in (
        b"\xc0",
        b"\xc3",
        b"\x7f",
        b"\xcb" + struct.pack(">d", 21.5),
        b"\xc4\x02\xff\x00",
        b"\x92\x01\xa1x",
        b"\x81\xa1k\x90",
    ):
        sender.say(PUB, topic(context.name()), payload=payload)
        receiver.published(context.name(), payload, sender.number)


@cases.rule("2.1", "A payload of 200,000 bytes arrives unchanged")
def a_large_payload_is_delivered(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    payload = b"\xc6" + struct.pack(">I", 200_000) + bytes(range(250)) * 800
    sender.say(PUB, topic(context.name()), payload=payload)
    receiver.published(context.name(), payload, sender.number)


@cases.rule("3.6", "All subscribers of a topic receive a message")
def all_subscribers_receive(context: CaseContext) -> None:
    receivers, sender = (
        [joined(context).subscribe(context.name()) for _ in range(3)],
        joined(context),
    )
    sender.say(PUB, topic(context.name()), payload=HELLO)
    for receiver in receivers:
        receiver.published(context.name(), HELLO, sender.number)


@cases.rule("7.3.3", "A subscriber receives nothing of other topics")
def other_topics_are_not_delivered(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name("mine")), joined(context)
    sender.say(PUB, topic(context.name("other")), payload=b"\xa3not")
    sender.say(PUB, topic(context.name("mine")), payload=HELLO)
    receiver.published(context.name("mine"), HELLO, sender.number)


@cases.rule("7.3.3", "Topic names are case-sensitive")
def topics_are_case_sensitive(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name("Topic")), joined(context)
    sender.say(PUB, topic(context.name("topic")), payload=b"\xa3not")
    sender.say(PUB, topic(context.name("Topic")), payload=HELLO)
    receiver.published(context.name("Topic"), HELLO, sender.number)


@cases.rule("7.3.3", "After UNSUB nothing of the topic is delivered")
def unsub_ends_deliveries(context: CaseContext) -> None:
    receiver = joined(context).subscribe(context.name("a"), context.name("b"))
    sender = joined(context)
    receiver.say(UNSUB, topic(context.name("a")))
    receiver.settle()
    sender.say(PUB, topic(context.name("a")), payload=b"\xa4gone")
    sender.say(PUB, topic(context.name("b")), payload=HELLO)
    receiver.published(context.name("b"), HELLO, sender.number)


@cases.rule("7.3.3", "A second SUB to a topic does not deliver twice")
def a_second_sub_changes_nothing(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name(), context.name()), joined(context)
    sender.say(PUB, topic(context.name()), payload=HELLO)
    sender.settle()
    receiver.published(context.name(), HELLO, sender.number)
    receiver.settle()


@cases.rule("3.6", "Messages of one publisher arrive in their order")
def order_is_kept(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    payloads = [bytes((number,)) for number in range(100)]
    sender.send(
        b"".join(frame(PUB, sender.number, topic(context.name()), each) for each in payloads)
    )
    for payload in payloads:
        receiver.published(context.name(), payload, sender.number)


@cases.rule("7.4", "Unknown fields are ignored")
def unknown_fields_are_ignored(context: CaseContext) -> None:
    receiver, sender = joined(context).subscribe(context.name()), joined(context)
    sender.say(PUB, topic(context.name()), {"x-later": [1, {"a": None}]}, payload=HELLO)
    receiver.published(context.name(), HELLO, sender.number)


# --- Penstock's profile ---------------------------------------------------------------------------


def pair(context: CaseContext) -> tuple[FleximqPeer, FleximqPeer]:
    """Return two clients: the publisher and the subscriber of most cases."""
    return joined(context), joined(context)


@cases.profile("2.3.1", "A payload of every MessagePack format arrives unchanged")
def payloads_of_every_format_are_delivered(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name())
    for _, payload in context.each(FORMATS.items()):
        subscriber.expect(publisher.say(PUB, topic(context.name()), payload=payload))


@cases.profile("2.2.1", "Header fields in any order, a status and unknown fields arrive unchanged")
def header_fields_are_delivered_unchanged(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name())
    subscriber.expect(publisher.say(PUB, status(207), {"colour": "blue"}, topic(context.name())))


@cases.profile("2.1", "Reserved bytes are delivered as zero")
def reserved_bytes_are_delivered_as_zero(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name())
    sent = publisher.say(PUB, topic(context.name()), payload=b"\x01", reserved=9)
    subscriber.expect(sent[:6] + bytes(16) + sent[22:])


@cases.profile("3.6", "A publisher that subscribed receives its own message")
def a_publisher_receives_its_own_message(context: CaseContext) -> None:
    peer = joined(context).subscribe(context.name())
    peer.expect(peer.say(PUB, topic(context.name()), payload=b"\x01"))


@cases.profile(
    "3.6", "Without echo a publisher does not receive its own message", requires=Setup.NO_ECHO
)
def without_echo_a_publisher_does_not_receive(context: CaseContext) -> None:
    peer, other = pair(context)
    peer.subscribe("own")
    other.subscribe("own")
    other.expect(peer.say(PUB, topic("own"), payload=b"\x01"))
    peer.say(PUB, topic("own"), routing((peer.number, ""), (other.number, "")))
    equal(other.message(PUB).header.get("routing"), routing((other.number, ""))["routing"])
    peer.settle()


@cases.profile("7.3.3", "Only subscribers of the exact name receive a message")
def only_subscribers_of_the_exact_name_receive(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name("Case"))
    publisher.say(PUB, topic(context.name("case")))
    publisher.say(PUB, topic(context.name("Case/x")))
    subscriber.expect(publisher.say(PUB, topic(context.name("Case"))))
    publisher.settle()
    subscriber.settle()


@cases.profile("7.3.3", "A second SUB changes nothing, and one UNSUB ends both")
def one_unsub_ends_two_subs(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    name = context.name()
    subscriber.subscribe(name, name)
    for payload in (b"\x01", b"\x02"):
        subscriber.expect(publisher.say(PUB, topic(name), payload=payload))
    subscriber.say(UNSUB, topic(name))
    subscriber.settle()
    publisher.say(PUB, topic(name), payload=b"\x03")
    publisher.settle()
    subscriber.settle()


@cases.profile("7.3.3", "Wildcards match levels, and a message is delivered once")
def wildcards_match_levels(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name("+/end"), context.name("#"), context.name("a/end"))
    for suffix in context.each(("a/end", "b/end", "b")):
        subscriber.expect(publisher.say(PUB, topic(context.name(suffix)), payload=b"\x01"))
    subscriber.settle()


@cases.profile("7.3.3", "After UNSUB not one message is delivered, even of a stream")
def unsub_ends_a_stream(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    name = context.name()
    subscriber.subscribe(name)
    burst = b"".join(frame(PUB, publisher.number, topic(name), pack(n)) for n in range(500))
    publisher.send(burst)
    equal(subscriber.message(PUB).payload, pack(0), "payload")
    subscriber.say(UNSUB, topic(name))
    subscriber.say(PING, keepalive(1))
    while subscriber.frame().type == PUB:
        pass
    publisher.send(burst)
    publisher.settle()
    subscriber.settle()


@cases.profile("5.1.4", "UNSUB without a subscription gets status 601")
def unsub_without_a_subscription_gets_601(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(UNSUB, topic(context.name("never")))
    peer.expect_notice(601)
    peer.subscribe(context.name("a"))
    peer.say(UNSUB, topic(context.name("#")))
    peer.expect_notice(601)
    peer.say(UNSUB, topic(context.name("a")))
    peer.say(UNSUB, topic(context.name("a")))
    peer.expect_notice(601)
    peer.settle()


@cases.profile("5.1.4", "A SUB that can match nothing gets status 603")
def a_pattern_that_matches_nothing_gets_603(context: CaseContext) -> None:
    peer = joined(context)
    for name in context.each(("", "a/#/b", ">/b")):
        peer.say(SUB, topic(name))
        peer.expect_notice(603)
        peer.settle()


@cases.profile("5.1.4", "A SUB from what is almost a start position gets 603, with a hint")
def a_start_that_is_almost_one_gets_603(context: CaseContext) -> None:
    peer = joined(context)
    for start, meant in context.each(NEARLY_STARTS.items()):
        peer.say(SUB, topic(context.name("a") + start))
        text = peer.expect_notice(603)
        check(meant in text, f"a text with '{meant}'", text)
    peer.settle()


@cases.profile("5.1.2", "A PUB to a name that ends in a start position gets status 400")
def a_pub_to_a_start_position_gets_400(context: CaseContext) -> None:
    peer, everything = pair(context)
    everything.subscribe(context.name("#"))
    for start in context.each((*STARTS, *NEARLY_STARTS)):
        name = context.name("a") + start
        peer.say(PUB, topic(name), payload=b"\x01")
        text = peer.expect_notice(400)
        check("start position" in text, "a text with 'start position'", text)
        peer.say(PUB, topic(name), routing((peer.number, "")))
        peer.expect_notice(400)
    everything.expect(peer.say(PUB, topic(context.name("a@host")), payload=b"\x01"))
    everything.settle()


@cases.profile("5.1.4", "A SUB above the limit gets status 603", requires=Setup.SUBSCRIPTIONS)
def a_subscription_above_the_limit_gets_603(context: CaseContext) -> None:
    peer = joined(context).subscribe("1", "2", "2")
    peer.say(SUB, topic("3"))
    peer.expect_notice(603)
    peer.say(UNSUB, topic("1"))
    peer.subscribe("3")


@cases.profile(
    "5.1.2",
    "A forbidden topic gets status 403 to publish and 603 to subscribe",
    requires=Setup.ALLOW_LIST,
)
def forbidden_topics_are_refused(context: CaseContext) -> None:
    peer = joined(context).subscribe("both", "in/x")
    for name in context.each(("in/x", "elsewhere")):
        peer.say(PUB, topic(name), payload=b"\x01")
        peer.expect_notice(403)
        peer.say(PUB, topic(name), routing((peer.number, "")))
        peer.expect_notice(403)
    peer.say(SUB, topic("out/x"))
    peer.expect_notice(603)
    peer.say(PUB, topic("out/x"), payload=b"\x01")
    for _ in range(2):
        peer.expect(peer.say(PUB, topic("both"), payload=b"\x01"))
    peer.settle()


@cases.profile("5.1.2", "A PUB with an empty name or a wildcard gets status 400")
def a_pub_with_a_wildcard_gets_400(context: CaseContext) -> None:
    peer, everything = pair(context)
    everything.subscribe("#")
    for name in context.each(("", "a/+", "#", "a.*.b")):
        peer.say(PUB, topic(name), payload=b"\x01")
        peer.expect_notice(400)
        peer.say(PUB, topic(name), routing((peer.number, "")))
        peer.expect_notice(400)
        peer.settle()
        everything.settle()


@cases.profile(
    "6.1", "Each WebSocket message of the broker is one message", requires=Setup.WEBSOCKET
)
def a_websocket_message_is_one_message(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name("a"))
    sizes = (*range(50), 70_000, 1_000_000)
    burst = [
        frame(PUB, publisher.number, topic(context.name("a")), pack(bytes(size))) for size in sizes
    ]
    publisher.send(b"".join(burst))
    subscriber.expect_messages(*burst)
    large = b"".join(burst)
    for start in range(0, len(large), 99_999):  # cut anywhere
        publisher.send(large[start : start + 99_999])
    subscriber.expect_messages(*burst)


@cases.profile("3.6", "1,000 messages in one write arrive in their order")
def a_thousand_messages_keep_their_order(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name("#"))
    burst = b"".join(
        frame(PUB, publisher.number, topic(context.name(f"{n % 7}")), pack({"n": n}))
        for n in range(1000)
    )
    publisher.send(burst)
    subscriber.expect(burst)
    subscriber.settle()


@cases.profile("2.1", "Messages that arrive byte by byte are delivered whole")
def messages_that_arrive_byte_by_byte_are_delivered(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    name = context.name()
    subscriber.subscribe(name)
    publisher.send_each(
        frame(PUB, publisher.number, topic(name), pack("first"))
        + frame(PING, publisher.number, keepalive(3))
        + frame(PUB, publisher.number, topic(name), pack("second"))
    )
    equal(publisher.message(PONG).header, keepalive(3))
    for text in ("first", "second"):
        subscriber.published(name, pack(text), publisher.number)


@cases.profile("3.6", "PUB, SUB and UNSUB in one write take effect in their order")
def operations_in_one_write_keep_their_order(context: CaseContext) -> None:
    peer = joined(context)
    name = topic(context.name())
    steps = ((PUB, b"\x01"), (SUB, b""), (PUB, b"\x02"), (UNSUB, b""), (PUB, b"\x03"))
    peer.send(b"".join(frame(kind, peer.number, name, payload) for kind, payload in steps))
    equal(peer.message(PUB).payload, b"\x02", "payload")
    peer.settle()


@cases.profile("2.1", "A payload of 1 MiB arrives unchanged")
def a_payload_of_1_mib_is_delivered(context: CaseContext) -> None:
    publisher, subscriber = pair(context)
    subscriber.subscribe(context.name())
    payload = pack(bytes(range(256)) * 4096)
    subscriber.expect(publisher.say(PUB, topic(context.name()), payload=payload))


# --- PUB with routing -----------------------------------------------------------------------------


@cases.profile("2.2.2", "A routed PUB reaches the listed subscribers alone, each with its path")
def a_routed_pub_reaches_listed_subscribers(context: CaseContext) -> None:
    publisher, first, second, unlisted, unsubscribed = (joined(context) for _ in range(5))
    name = context.name("a")
    first.subscribe(name)
    second.subscribe(context.name("+"))
    unlisted.subscribe(name)
    entries = [(first.number, "/one"), (unsubscribed.number, "/no"), (second.number, "/two")]
    publisher.say(PUB, topic(name), status(299), routing(*entries), payload=b"\xcd\x00\x05")
    for peer, path in ((first, "/one"), (second, "/two")):
        expected = topic(name) | status(299) | routing((peer.number, path))
        equal(peer.frame(), Frame(PUB, publisher.number, expected, b"\xcd\x00\x05"))
    for peer in (publisher, first, second, unlisted, unsubscribed):
        peer.settle()


@cases.profile("5.1.4", "A routed PUB to unknown clients gets status 600 and reaches the others")
def a_routed_pub_to_unknown_clients_gets_600(context: CaseContext) -> None:
    peer, other = joined(context), joined(context).subscribe(context.name())
    entries = [(999, ""), (other.number, "/here"), (4_294_967_295, "")]
    peer.say(PUB, topic(context.name()), routing(*entries))
    text = peer.expect_notice(600)
    check("999" in text and "4294967295" in text, "a text with 999 and 4294967295", text)
    here = routing((other.number, "/here"))["routing"]
    equal(other.message(PUB).header.get("routing"), here, "routing")
    peer.settle()
    other.settle()


@cases.profile("3.6", "Routed and other messages keep their order")
def routed_messages_keep_their_order(context: CaseContext) -> None:
    name = context.name()
    peer = joined(context).subscribe(name)
    own = routing((peer.number, "/me"))
    peer.send(
        b"".join(
            frame(PUB, peer.number, topic(name) | (own if n % 3 else {}), pack(n))
            for n in range(60)
        )
    )
    for number in range(60):
        equal(peer.message(PUB).payload, pack(number), "payload")


@cases.profile("3.6", "A PUB whose routing names the broker is for all subscribers")
def routing_to_the_broker_means_all_subscribers(context: CaseContext) -> None:
    name = context.name()
    first, second = joined(context).subscribe(name), joined(context).subscribe(name)
    publisher = joined(context)
    for entries in context.each(
        ([(BROKER, "/")], [(first.number, "/one"), (BROKER, "")], 2 * [(BROKER, "/")])
    ):
        publisher.say(PUB, topic(name), status(299), routing(*entries), payload=HELLO)
        expected = Frame(PUB, publisher.number, topic(name) | status(299), HELLO)
        for peer in (first, second):
            equal(peer.frame(), expected)
    publisher.settle()
    for peer in (first, second):
        peer.settle()
