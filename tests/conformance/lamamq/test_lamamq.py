"""LamaMQ over a socket, case by case: bytes in, bytes out. Middleware has a file of its own."""

import struct
import time
from collections.abc import Iterator

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols.lamamq import LAMAMQ
from tests.support import herald_bytes
from tests.support.lamamq_bytes import (
    BAD_REQUEST,
    BIG,
    BROKER_BIT,
    BUFFER,
    CHOICE,
    EMPTY,
    LITTLE,
    OFFER,
    SERVER_EXCEPTION,
    STRING,
    LamaPeer,
    answer,
    authentication,
    client,
    counted,
    forward,
    header,
    push,
    subscribe,
    subscriber,
    unsubscribe,
)
from tests.support.live import LiveBroker

ORDERS = pytest.mark.parametrize("order", [BIG, LITTLE], ids=["big", "little"])
BINARY = bytes(range(256))


@pytest.fixture(scope="module")
def pinned() -> Iterator[LiveBroker]:
    """A broker that takes every first byte for LamaMQ's."""
    with LiveBroker(options=GatewayOptions(protocol=LAMAMQ, order="big")) as live:
        yield live


@pytest.fixture(scope="module")
def strict() -> Iterator[LiveBroker]:
    """A broker with secrets."""
    rules = [
        Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="secret/#"),
        Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="hidden/#"),
    ]
    with LiveBroker(options=GatewayOptions(anonymous=Principal("guest", rules))) as live:
        yield live


# --- Handshakes ---------------------------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize(
    "key", [None, b"", b"k3y", bytes(4096)], ids=["none", "empty", "short", "longest"]
)
def test_01_a_client_is_let_in_with_and_without_a_key(
    broker: LiveBroker, order: str, key: bytes | None
) -> None:
    with LamaPeer(broker, order=order) as peer:
        peer.join(b"meter-3", key).settle()


def test_02_a_session_goes_by_the_identity_name(broker: LiveBroker) -> None:
    with client(broker, "zähler".encode()) as peer:
        peer.settle()
        names = broker.call(lambda: [session.name for session in broker.server.broker.sessions])
        assert "zähler" in names


@ORDERS
def test_03_the_handshake_may_come_byte_by_byte(broker: LiveBroker, order: str) -> None:
    with LamaPeer(broker, order=order) as peer:
        for byte in authentication(b"slow", order=order):
            peer.send(bytes([byte]))
        peer.expect(OFFER)
        for byte in CHOICE:
            peer.send(bytes([byte]))
        peer.settle()


@pytest.mark.parametrize("version", [b"\x00\x09", b"\x01\x01", b"\x02\x00"], ids=bytes.hex)
def test_04_a_version_that_was_not_offered_is_error_2_and_the_end(
    broker: LiveBroker, version: bytes
) -> None:
    with LamaPeer(broker) as peer:
        peer.send(authentication())
        peer.expect(OFFER)
        peer.send(version + push(1, b"a"))
        assert b"was not offered" in peer.expect_answer(0, BAD_REQUEST)
        peer.expect_close()


@pytest.mark.parametrize(
    "first",
    [
        b"\x07" + counted(b"c"),
        b"\x00" + counted(b""),
        b"\x00" + counted(b"\xff"),
        b"\x00" + counted(b"c") + struct.pack(">I", 4097),
        b"\x00" + struct.pack(">I", 1025),
    ],
    ids=["method", "empty", "not-utf8", "key-too-long", "name-too-long"],
)
def test_05_a_bad_authentication_is_error_2_for_id_0_and_the_end(
    pinned: LiveBroker, first: bytes
) -> None:
    with LamaPeer(pinned) as peer:
        peer.send(first)
        assert peer.expect_answer(0, BAD_REQUEST)
        peer.expect_close()


def test_06_an_empty_name_is_answered_on_a_shared_port_too(broker: LiveBroker) -> None:
    with LamaPeer(broker) as peer:
        peer.send(authentication(b""))
        assert peer.expect_answer(0, BAD_REQUEST) == b"bad request: the identity name is empty"
        peer.expect_close()


def test_07_where_nobody_may_come_anonymously_the_answer_is_error_2() -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as live, LamaPeer(live) as peer:
        peer.send(authentication(b"meter-3"))
        assert peer.expect_answer(0, BAD_REQUEST) == b"identity refused"
        peer.expect_close()


def test_08_a_full_broker_is_error_1_and_the_end() -> None:
    with LiveBroker(settings=BrokerSettings(sessions_max=1)) as live, client(live) as first:
        first.settle()
        with LamaPeer(live) as second:
            second.join()
            assert second.expect_answer(0, SERVER_EXCEPTION) == b"the limit of 1 clients is reached"
            second.expect_close()
        first.settle()


# --- Pushes and their answers -------------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize("identifier", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_10_a_push_is_answered_under_its_id_whatever_it_is(
    broker: LiveBroker, order: str, identifier: int
) -> None:
    with client(broker, order=order) as peer:
        peer.send(push(identifier, b"a", b"x", order=order))
        peer.expect(answer(identifier, order=order))


@ORDERS
def test_11_a_thousand_pipelined_pushes_are_answered_in_order(
    broker: LiveBroker, order: str
) -> None:
    with client(broker, order=order) as peer:
        peer.send(
            b"".join(push(n, b"many/%d" % (n % 7), b"%d" % n, order=order) for n in range(1000))
        )
        peer.expect(b"".join(answer(n, order=order) for n in range(1000)))


def test_12_pushes_and_requests_are_answered_in_the_order_they_came(broker: LiveBroker) -> None:
    with client(broker) as peer:
        peer.send(
            push(1, b"o")
            + subscribe(2, b"o/x")
            + push(3, b"o")
            + unsubscribe(4, b"o/y")
            + push(5, b"o")
        )
        peer.expect(answer(1) + answer(2) + answer(3))
        peer.expect_answer(4, BAD_REQUEST)
        peer.expect(answer(5))


@ORDERS
def test_13_messages_may_come_byte_by_byte(broker: LiveBroker, order: str) -> None:
    with client(broker, order=order) as peer:
        stream = subscribe(1, b"bytes/+", order=order)
        stream += push(2, b"bytes/1", b"xy", headers=[(b"k", b"v")], order=order)
        for byte in stream:
            peer.send(bytes([byte]))
        peer.expect_answer(1)
        assert peer.forwarded()[1:] == (1_700_000_000, b"bytes/1", [(b"k", b"v")], BUFFER, b"xy")
        peer.expect_answer(2)


def test_14_a_small_message_behind_a_large_one_that_came_in_parts_is_not_kept_waiting(
    broker: LiveBroker,
) -> None:
    with client(broker) as peer:
        large = push(1, b"large", bytes(3_000_000))
        peer.settle()
        for start in range(0, len(large), 100_000):
            peer.send(large[start : start + 100_000])
        peer.expect_answer(1)
        peer.send(unsubscribe(2, b"no"))
        peer.expect_answer(2, BAD_REQUEST)


@pytest.mark.parametrize("topic", [b"", b"a/+/b", b"#", b"a.*", b"a/>"], ids=repr)
def test_15_what_cannot_be_a_topic_is_error_2_and_those_around_it_are_taken(
    broker: LiveBroker, topic: bytes
) -> None:
    with subscriber(broker, b"fine") as listener, client(broker) as peer:
        peer.send(push(1, b"fine", b"1") + push(2, topic, b"x") + push(3, b"fine", b"2"))
        peer.expect(answer(1))
        assert b"no topic can be named" in peer.expect_answer(2, BAD_REQUEST)
        peer.expect(answer(3))
        assert [listener.forwarded().payload for _ in range(2)] == [b"1", b"2"]


def test_16_a_push_that_rules_forbid_is_error_2_and_all_others_are_taken_once(
    strict: LiveBroker,
) -> None:
    with subscriber(strict, b"t/+") as listener, client(strict) as peer:
        topics = [b"t/1", b"t/1", b"secret/x", b"t/2", b"t/1", b"secret/y", b"t/3"]
        peer.send(b"".join(push(n, topic, b"%d" % n) for n, topic in enumerate(topics)))
        for n, topic in enumerate(topics):
            forbidden = topic.startswith(b"secret")
            text = peer.expect_answer(n, BAD_REQUEST if forbidden else 0)
            assert text == (b"guest may not publish to '%s'" % topic if forbidden else b"")
        assert [listener.forwarded().payload for _ in range(5)] == [b"0", b"1", b"3", b"4", b"6"]
        listener.settle()


# --- Deliveries ---------------------------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize("from_order", [BIG, LITTLE], ids=["from-big", "from-little"])
@pytest.mark.parametrize(
    "headers",
    [[], [(b"unit", b"C")], [(b"unit", b"C"), (b"unit", b"F"), (b"", b""), (b"x", BINARY)]],
    ids=["no-headers", "one-header", "four-headers"],
)
def test_20_a_push_is_forwarded_byte_for_byte_but_for_its_first_five(
    broker: LiveBroker, order: str, from_order: str, headers: list[tuple[bytes, bytes]]
) -> None:
    contents = [(EMPTY, b""), (STRING, b""), (STRING, b"21.5"), (BUFFER, b""), (BUFFER, BINARY)]
    with subscriber(broker, b"plant/temp", order=order) as listener:
        with client(broker, order=from_order) as peer:
            for number, (kind, payload) in enumerate(contents):
                more = {"kind": kind, "headers": headers, "created_at": 0xFEDCBA98}
                peer.send(push(number, b"plant/temp", payload, order=from_order, **more))
            peer.expect(b"".join(answer(n, order=from_order) for n in range(len(contents))))
        for kind, payload in contents:
            more = {"kind": kind, "headers": headers, "created_at": 0xFEDCBA98}
            expected = forward(0, b"plant/temp", payload, order=order, **more)
            (identifier,) = struct.unpack(f"{order}I", listener.receive(4))
            assert identifier & BROKER_BIT
            listener.expect(expected[4:])


def test_21_ids_of_forwards_count_up_with_the_top_bit_set() -> None:
    with LiveBroker() as live, subscriber(live, b"ids") as listener, client(live) as peer:
        peer.send(b"".join(push(n, b"ids") for n in range(100)))
        found = [listener.forwarded().identifier for _ in range(100)]
        assert found == list(range(found[0], found[0] + 100))
        assert found[0] & BROKER_BIT


def test_22_a_herald_message_comes_as_a_buffer_without_headers_at_the_brokers_time(
    broker: LiveBroker,
) -> None:
    with subscriber(broker, b"channel/9") as listener, herald_bytes.publisher(broker, 9) as peer:
        peer.send(herald_bytes.publish(9, BINARY) + herald_bytes.publish(9, b""))
        one, two = listener.forwarded(), listener.forwarded()
        assert one[2:] == (b"channel/9", [], BUFFER, BINARY)
        assert two[2:] == (b"channel/9", [], EMPTY, b"")
        assert abs(one.created_at - time.time()) < 60


@pytest.mark.parametrize("kind", [STRING, BUFFER])
def test_23_a_push_reaches_herald_as_its_bare_payload(broker: LiveBroker, kind: int) -> None:
    with herald_bytes.subscriber(broker, b"\x0a") as listener, client(broker) as peer:
        peer.send(push(1, b"channel/10", BINARY, kind=kind, headers=[(b"k", b"v")]))
        assert listener.message()[::2] == (10, BINARY)


def test_24_a_publisher_that_subscribed_gets_its_own_message(broker: LiveBroker) -> None:
    with subscriber(broker, b"own") as peer:
        peer.send(push(1, b"own", b"mine"))
        assert peer.forwarded().payload == b"mine"
        peer.expect_answer(1)


def test_25_a_listener_without_echo_brings_nobody_its_own_message() -> None:
    with (
        LiveBroker(options=GatewayOptions(echo=False)) as live,
        subscriber(live, b"own") as peer,
        subscriber(live, b"own") as other,
    ):
        peer.request(push(0, b"own", b"mine"))
        assert other.forwarded().payload == b"mine"
        peer.settle()


# --- Subscriptions ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [b"w/+/z", b"w.*.z", b"w/#", b"w/>", b"w/y/z"], ids=repr)
def test_30_wildcards_are_allowed(broker: LiveBroker, pattern: bytes) -> None:
    with subscriber(broker, pattern) as listener, client(broker) as peer:
        peer.send(push(1, b"v/y/z", b"no") + push(2, b"w/y/z", b"yes"))
        assert listener.forwarded()[2:] == (b"w/y/z", [], BUFFER, b"yes")


def test_31_unsubscribed_means_not_one_message_more(broker: LiveBroker) -> None:
    with subscriber(broker, b"u/1", b"u/2") as listener, client(broker) as peer:
        peer.request(push(0, b"u/1", b"a"))
        assert listener.forwarded().payload == b"a"
        listener.request(unsubscribe(0, b"u/1"))
        peer.request(push(0, b"u/1", b"b"))
        peer.request(push(0, b"u/2", b"c"))
        assert listener.forwarded().payload == b"c"


def test_32_a_second_subscription_is_answered_and_changes_nothing(broker: LiveBroker) -> None:
    with (
        subscriber(broker, b"twice", b"twice", b"twi+", b"twice/#") as listener,
        client(broker) as peer,
    ):
        peer.request(push(0, b"twice", b"a"))
        assert listener.forwarded().payload == b"a"
        listener.settle()


@pytest.mark.parametrize("pattern", [b"", b"a/#/b", b">.x"], ids=repr)
def test_33_a_pattern_that_matches_nothing_is_error_2(broker: LiveBroker, pattern: bytes) -> None:
    with client(broker) as peer:
        text = peer.request(subscribe(0, pattern), error=BAD_REQUEST)
        assert b"nothing can be subscribed to by" in text
        peer.settle()


def test_34_what_rules_forbid_is_error_2_and_nothing_comes(strict: LiveBroker) -> None:
    with client(strict) as peer:
        text = peer.request(subscribe(0, b"hidden/x"), error=BAD_REQUEST)
        assert text == b"guest may not subscribe to 'hidden/x'"
        peer.request(push(0, b"hidden/x"))
        peer.settle()


def test_35_one_subscription_too_many_is_error_2() -> None:
    settings = BrokerSettings(subscriptions_max=2)
    with LiveBroker(settings=settings) as live, subscriber(live, b"1", b"2") as peer:
        text = peer.request(subscribe(0, b"3"), error=BAD_REQUEST)
        assert text == b"the limit of 2 subscriptions is reached"
        peer.request(unsubscribe(0, b"1"))
        peer.request(subscribe(0, b"3"))


def test_36_unsubscribing_what_one_has_not_is_error_2(broker: LiveBroker) -> None:
    with subscriber(broker, b"have") as peer:
        text = peer.request(unsubscribe(0, b"have/not"), error=BAD_REQUEST)
        assert text == b"there is no subscription to 'have/not'"
        peer.request(unsubscribe(0, b"have"))
        peer.request(unsubscribe(0, b"have"), error=BAD_REQUEST)


# --- Faults -------------------------------------------------------------------------------------


@ORDERS
def test_40_a_forward_from_a_client_is_error_2_and_reaches_nobody(
    broker: LiveBroker, order: str
) -> None:
    with subscriber(broker, b"f") as listener, client(broker, order=order) as peer:
        peer.send(forward(9, b"f", b"x", order=order))
        assert b"Forward is not allowed" in peer.expect_answer(9, BAD_REQUEST)
        peer.request(push(0, b"f", b"y", order=order))
        assert listener.forwarded().payload == b"y"


@pytest.mark.parametrize(
    "data",
    [
        push(5, b"\xff", b"x"),
        push(5, b"r", b"x", headers=[(b"\xff", b"v")]),
        subscribe(5, b"\xff"),
        unsubscribe(5, b"\xff"),
        header(5, 64) + counted(b"") + struct.pack(">IIBB", 0, 0, 0, 0),
        header(5, 64) + counted(b"h") + struct.pack(">IIBB", 0, 0, 9, 0),
        header(5, 65) + counted(b"\xff"),
    ],
    ids=["topic", "header", "subscribe", "unsubscribe", "no-hook-name", "strategy", "unregister"],
)
def test_41_a_whole_message_with_a_wrong_field_is_error_2_and_the_stream_goes_on(
    broker: LiveBroker, data: bytes
) -> None:
    with client(broker) as peer:
        peer.send(push(4, b"r") + data + push(6, b"r"))
        peer.expect_answer(4)
        assert peer.expect_answer(5, BAD_REQUEST).startswith(b"bad request: ")
        peer.expect_answer(6)


@pytest.mark.parametrize(
    "data",
    [
        header(5, 2),
        header(5, 0) + struct.pack(">I", 0) + counted(b"t") + b"\x00\x00" + b"\x03",
        header(5, 0) + struct.pack(">I", 0) + counted(b"t") + struct.pack(">H", 257),
        header(5, 0) + struct.pack(">I", 0) + counted(b"t") + b"\x00\x01" + struct.pack(">I", 65536),
        header(5, 0) + struct.pack(">I", 0) + struct.pack(">I", 65527),
        header(5, 0) + struct.pack(">I", 0) + counted(b"t") + b"\x00\x00\x02" + struct.pack(">I", 16777217),
        header(5, 32) + struct.pack(">I", 65527),
        header(5, 64) + counted(b"h") + struct.pack(">IIBB", 0, 0, 0, 2),
        header(5, 64) + counted(b"h") + struct.pack(">IIBBHB", 0, 0, 0, 16, 1, 1),
        header(5, 64) + counted(b"h") + struct.pack(">IIBBH", 0, 0, 0, 16, 65),
        header(5, 64) + struct.pack(">I", 256),
    ],
    ids=[
        "type", "payload-type", "headers", "header-bytes", "topic-bytes", "payload-bytes",
        "pattern-bytes", "hook-type", "condition-type", "conditions", "hook-name-bytes",
    ],
)  # fmt: skip
def test_42_where_the_end_of_a_message_is_unknown_it_is_error_2_and_the_end(
    broker: LiveBroker, data: bytes
) -> None:
    with client(broker) as peer:
        peer.send(push(4, b"r") + data)
        peer.expect_answer(4)
        assert peer.expect_answer(5, BAD_REQUEST)
        peer.expect_close()


def test_43_a_lost_connection_takes_nothing_of_others_with_it(broker: LiveBroker) -> None:
    with subscriber(broker, b"others") as listener, client(broker) as sound:
        with client(broker) as broken:
            broken.send(header(1, 99) + bytes(1000))
            broken.expect_answer(1, BAD_REQUEST)
            broken.expect_close()
        sound.request(push(0, b"others", b"x"))
        assert listener.forwarded().payload == b"x"
