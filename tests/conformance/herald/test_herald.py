"""herald over a socket, case by case: bytes in, bytes out."""

import struct
import time
from collections.abc import Iterator

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.support.herald_bytes import (
    DISCONNECT,
    PING,
    PONG,
    HeraldPeer,
    error,
    frame,
    handshake_pub,
    handshake_sub,
    publish,
    publisher,
    subscribe,
    subscriber,
    unsubscribe,
)
from tests.support.live import LiveBroker

INVALID_HANDSHAKE, CHANNEL_NOT_FOUND, MESSAGE_TOO_LARGE = 1, 2, 3
RATE_LIMIT_EXCEEDED, INVALID_OPCODE, MALFORMED_MESSAGE, UNAUTHORIZED = 4, 6, 7, 8


# --- Handshakes ---------------------------------------------------------------------------------


def test_01_a_publisher_is_acknowledged_with_a_session_id(broker: LiveBroker) -> None:
    with publisher(broker) as one, publisher(broker) as two:
        assert one.session_id != two.session_id != 0


def test_02_a_subscriber_is_acknowledged_and_gets_its_channels(broker: LiveBroker) -> None:
    with subscriber(broker, b"\x01\x02") as peer, publisher(broker) as sender:
        sender.send(publish(1, b"a") + publish(3, b"no") + publish(2, b"b"))
        assert [peer.message()[::2] for _ in range(2)] == [(1, b"a"), (2, b"b")]


def test_03_an_empty_client_id_and_no_channels_are_allowed(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"", b""))


def test_04_the_broker_answers_in_the_clients_byte_order(broker: LiveBroker) -> None:
    with subscriber(broker, order=">") as big, subscriber(broker) as little:
        with publisher(broker, order=">") as sender:
            sender.send(publish(7, b"x", order=">"))
        assert big.message()[::2] == little.message()[::2] == (7, b"x")


@pytest.mark.parametrize(
    "first",
    [publish(7, b"x"), subscribe(7), unsubscribe(7), PING, PONG, frame(0x03, bytes(9)), error(1)],
    ids=["publish", "subscribe", "unsubscribe", "ping", "pong", "ack", "error"],
)
def test_05_any_frame_before_the_handshake_is_an_invalid_handshake(
    broker: LiveBroker, first: bytes
) -> None:
    with HeraldPeer(broker) as peer:
        peer.send(first)
        peer.expect(error(INVALID_HANDSHAKE))
        peer.join(handshake_pub())


@pytest.mark.parametrize(
    "handshake",
    [frame(0x01), frame(0x01, b"\x07"), frame(0x01, b"\x07\x05ab"), frame(0x01, b"\x07\x01\xff"),
     frame(0x02), frame(0x02, b"\x02\x01"), frame(0x02, b"\x00\x00\x00")],
)  # fmt: skip
def test_06_a_malformed_handshake_is_named_so(broker: LiveBroker, handshake: bytes) -> None:
    with HeraldPeer(broker) as peer:
        peer.send(handshake)
        peer.expect(error(INVALID_HANDSHAKE))


def test_07_a_second_handshake_of_the_same_role_is_invalid(broker: LiveBroker) -> None:
    with publisher(broker) as peer:
        peer.send(handshake_pub())
        peer.expect(error(INVALID_HANDSHAKE))
        peer.settle()


def test_08_one_connection_may_hold_both_roles_and_hears_itself(broker: LiveBroker) -> None:
    with publisher(broker) as peer:
        peer.join(handshake_sub(b"\x09"))
        peer.send(publish(9, b"echo"))
        assert peer.message()[::2] == (9, b"echo")


# --- Publishing and subscribing -----------------------------------------------------------------


def test_10_a_message_carries_the_brokers_time_in_microseconds(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        before = time.time_ns() // 1000
        sender.send(publish(7, b"now"))
        _, timestamp, _ = peer.message()
        assert before - 1 <= timestamp <= time.time_ns() // 1000


def test_11_a_publisher_may_publish_on_any_channel(broker: LiveBroker) -> None:
    with subscriber(broker, bytes(range(256))[:255]) as peer, publisher(broker, 0) as sender:
        sender.send(b"".join(publish(channel, bytes([channel])) for channel in range(255)))
        for channel in range(255):
            assert peer.message()[::2] == (channel, bytes([channel]))


def test_12_subscribe_and_unsubscribe_take_effect_in_order(broker: LiveBroker) -> None:
    with subscriber(broker, b"") as peer, publisher(broker) as sender:
        peer.send(subscribe(20))
        peer.settle()
        sender.send(publish(20, b"one"))
        assert peer.message()[::2] == (20, b"one")
        peer.send(subscribe(20) + unsubscribe(20))
        peer.settle()
        sender.send(publish(20, b"two"))
        sender.settle()
        peer.settle()


def test_13_a_payload_may_be_empty_or_hold_any_bytes(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        for message in (b"", bytes(range(256)), b"\xfe\xca\x10" * 50):
            sender.send(publish(7, message))
            assert peer.message()[2] == message


def test_14_a_thousand_messages_in_one_write_arrive_in_order(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        sender.send(b"".join(publish(7, struct.pack("<I", n)) for n in range(1000)))
        assert [peer.message()[2] for _ in range(1000)] == [
            struct.pack("<I", n) for n in range(1000)
        ]


def test_15_a_session_may_arrive_byte_by_byte(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, HeraldPeer(broker) as sender:
        for byte in handshake_pub() + publish(7, b"slow") + PING:
            sender.send(bytes([byte]))
        assert peer.message()[::2] == (7, b"slow")
        assert len(sender.receive(16)) == 16
        sender.expect(PONG)


def test_16_messages_larger_than_the_receive_buffer_pass_whole(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        for size in (70_000, 262_144, 600_000, 1_048_567):
            message = bytes(n % 253 for n in range(1000)) * (size // 1000 + 1)
            sender.send(publish(7, message[:size]) + publish(7, b"after"))
            assert peer.message()[2] == message[:size]
            assert peer.message()[2] == b"after"


def test_17_the_largest_publish_is_taken_though_no_herald_client_can_receive_it(
    broker: LiveBroker,
) -> None:
    with subscriber(broker) as peer, publisher(broker) as sender:
        sender.send(publish(7, bytes(1_048_575)) + publish(7, b"next"))
        sender.settle()
        assert peer.message()[2] == b"next"


def test_18_controls_and_messages_keep_their_order(broker: LiveBroker) -> None:
    with subscriber(broker, b"\x1e") as peer, publisher(broker) as sender:
        sender.send(publish(30, b"1") + PING + publish(30, b"2") + PING + publish(30, b"3"))
        sender.expect(PONG + PONG)
        assert [peer.message()[2] for _ in range(3)] == [b"1", b"2", b"3"]


# --- Keep-alive and ends ------------------------------------------------------------------------


def test_20_ping_is_answered_by_pong_and_pong_by_nothing(broker: LiveBroker) -> None:
    with publisher(broker) as peer:
        peer.send(PONG + PING)
        peer.expect(PONG)


def test_21_disconnect_closes(broker: LiveBroker) -> None:
    with publisher(broker) as peer:
        peer.send(DISCONNECT + PING)
        peer.expect_close()
    with HeraldPeer(broker) as peer:
        peer.send(DISCONNECT)
        peer.expect_close()


def test_22_what_was_published_before_disconnect_arrives(broker: LiveBroker) -> None:
    with subscriber(broker) as peer:
        with publisher(broker) as sender:
            sender.send(publish(7, b"last") + DISCONNECT)
            sender.expect_close()
        assert peer.message()[2] == b"last"


def test_23_a_client_cut_in_the_middle_of_a_frame_disturbs_nobody(broker: LiveBroker) -> None:
    with subscriber(broker) as peer, publisher(broker) as other:
        with publisher(broker) as sender:
            sender.send(publish(7, b"whole") + publish(7, b"cut short")[:9])
            assert peer.message()[2] == b"whole"
        other.send(publish(7, b"goes on"))
        assert peer.message()[2] == b"goes on"


# --- Errors -------------------------------------------------------------------------------------


def test_30_every_unknown_opcode_is_invalid_and_the_session_goes_on(broker: LiveBroker) -> None:
    known = {0x01, 0x02, 0x03, 0x04, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21, 0xFF}
    with publisher(broker) as peer:
        for opcode in sorted(set(range(256)) - known):
            peer.send(frame(opcode, b"abc"))
            peer.expect(error(INVALID_OPCODE))
        peer.settle()


@pytest.mark.parametrize(
    "bad",
    [frame(0x10), frame(0x11), frame(0x11, b"ab"), frame(0x12), frame(0x12, b"ab"),
     frame(0x20, b"x"), frame(0x21, b"x"), frame(0x04, b"x"), frame(0x13, bytes(8)),
     frame(0x03, bytes(8)), frame(0xFF), frame(0xFF, b"\x09")],
)  # fmt: skip
def test_31_a_body_that_does_not_fit_is_malformed_and_the_session_goes_on(
    broker: LiveBroker, bad: bytes
) -> None:
    with publisher(broker) as peer:
        peer.send(bad + PING)
        peer.expect(error(MALFORMED_MESSAGE) + PONG)


@pytest.mark.parametrize(
    "frame_for_another_role",
    [subscribe(7), unsubscribe(7), frame(0x13, bytes(9)), frame(0x03, bytes(9)), error(1)],
)
def test_32_what_a_publisher_may_not_send_is_an_invalid_opcode(
    broker: LiveBroker, frame_for_another_role: bytes
) -> None:
    with publisher(broker) as peer:
        peer.send(frame_for_another_role + PING)
        peer.expect(error(INVALID_OPCODE) + PONG)


def test_33_a_subscriber_may_not_publish(broker: LiveBroker) -> None:
    with subscriber(broker, b"\x28") as peer:
        peer.send(publish(40, b"x") + PING)
        peer.expect(error(INVALID_OPCODE) + PONG)


def test_34_a_length_above_the_maximum_is_answered_at_once_and_closes(broker: LiveBroker) -> None:
    with publisher(broker) as peer:
        peer.send(struct.pack("<HBI", 0xCAFE, 0x10, 1_048_577))
        peer.expect(error(MESSAGE_TOO_LARGE))
        peer.expect_close()


def test_35_a_wrong_magic_closes_without_a_word(broker: LiveBroker) -> None:
    with publisher(broker) as peer, subscriber(broker) as other:
        peer.send(publish(7, b"good") + b"\xfe\xcb")
        peer.expect_close()
        assert other.message()[2] == b"good"


def test_36_first_bytes_of_no_protocol_close(broker: LiveBroker) -> None:
    for first in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"\xfe\x00", b"\xca\xfa"):
        with HeraldPeer(broker) as peer:
            peer.send(first)
            peer.expect_close()


# --- Channels that are listed, and rules --------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveBroker]:
    """Two channels exist; nobody publishes to one of them or subscribes to the other."""
    rules = [
        Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="alarms"),
        Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="audit"),
    ]
    options = GatewayOptions(anonymous=Principal("anyone", rules))
    with LiveBroker(options=options, channels={1: "alarms", 2: "audit", 3: "open"}) as live:
        yield live


def test_40_channels_that_are_not_listed_do_not_exist(guarded: LiveBroker) -> None:
    for handshake in (handshake_pub(9), handshake_sub(b"\x01\x09")):
        with HeraldPeer(guarded) as peer:
            peer.send(handshake)
            peer.expect(frame(0x03, bytes([CHANNEL_NOT_FOUND]) + bytes(8)))
            peer.expect_close()
    with publisher(guarded, 2) as peer:
        peer.send(publish(9, b"x") + PING)
        peer.expect(error(CHANNEL_NOT_FOUND) + PONG)
    with subscriber(guarded, b"") as peer:
        peer.send(subscribe(9) + unsubscribe(9) + PING)
        peer.expect(error(CHANNEL_NOT_FOUND) * 2 + PONG)


def test_41_what_the_rules_forbid_is_unauthorized(guarded: LiveBroker) -> None:
    for handshake in (handshake_pub(1), handshake_sub(b"\x02")):
        with HeraldPeer(guarded) as peer:
            peer.send(handshake)
            peer.expect(frame(0x03, bytes([UNAUTHORIZED]) + bytes(8)))
            peer.expect_close()
    with subscriber(guarded, b"\x01\x03") as listener, publisher(guarded, 2) as peer:
        peer.send(publish(3, b"a") + publish(1, b"no") + publish(3, b"b") + PING)
        peer.expect(error(UNAUTHORIZED) + PONG)
        assert [listener.message()[::2] for _ in range(2)] == [(3, b"a"), (3, b"b")]
        listener.send(subscribe(2) + PING)
        listener.expect(error(UNAUTHORIZED) + PONG)


def test_42_without_anonymous_clients_nobody_gets_in() -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as closed, HeraldPeer(closed) as peer:
        peer.send(handshake_pub())
        peer.expect(frame(0x03, bytes([UNAUTHORIZED]) + bytes(8)))
        peer.expect_close()


def test_43_a_connection_without_a_handshake_in_time_is_closed() -> None:
    options = GatewayOptions(handshake_seconds_max=0.2)
    with LiveBroker(options=options) as hasty:
        for first in (b"", b"\xfe", PING):
            with HeraldPeer(hasty) as peer:
                peer.send(first)
                if first == PING:
                    peer.expect(error(INVALID_HANDSHAKE))
                peer.expect_close()
        with publisher(hasty) as peer:
            peer.expect_nothing(0.5)
            peer.settle()


# --- Rate limits --------------------------------------------------------------------------------


def test_50_a_publish_above_the_rate_is_not_taken_and_says_so() -> None:
    options = GatewayOptions(messages_per_second_max=10)
    with LiveBroker(options=options) as strict, subscriber(strict) as peer:
        with publisher(strict) as sender:
            sender.send(b"".join(publish(7, bytes([n])) for n in range(30)) + PING)
            answers = sender.receive(7)
            refused = 0
            while answers != PONG:
                assert answers + sender.receive(1) == error(RATE_LIMIT_EXCEEDED)
                refused += 1
                answers = sender.receive(7)
            assert 15 <= refused <= 20
        got = [peer.message()[2] for _ in range(30 - refused)]
        assert got[:10] == [bytes([n]) for n in range(10)]


# --- Resume -------------------------------------------------------------------------------------


def test_60_a_client_that_was_cut_off_finds_its_subscriptions_again(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"\x32\x33", b"wanderer"))
    wait_until_gone(broker, "wanderer")
    with HeraldPeer(broker) as peer, publisher(broker) as sender:
        peer.join(handshake_sub(b"\x34", b"wanderer")).settle()
        sender.send(publish(50, b"a") + publish(51, b"b") + publish(52, b"c"))
        assert [peer.message()[::2] for _ in range(3)] == [(50, b"a"), (51, b"b"), (52, b"c")]


def test_61_who_said_goodbye_starts_afresh(broker: LiveBroker) -> None:
    with HeraldPeer(broker) as peer:
        peer.join(handshake_sub(b"\x32", b"leaver"))
        peer.send(DISCONNECT)
        peer.expect_close()
    wait_until_gone(broker, "leaver")
    with HeraldPeer(broker) as peer, publisher(broker) as sender:
        peer.join(handshake_sub(b"\x35", b"leaver")).settle()
        sender.send(publish(50, b"not this") + publish(53, b"this"))
        assert peer.message()[::2] == (53, b"this")


def wait_until_gone(broker: LiveBroker, name: str) -> None:
    deadline = time.monotonic() + 5
    while broker.call(lambda: any(s.name == name for s in broker.server.broker.sessions)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
