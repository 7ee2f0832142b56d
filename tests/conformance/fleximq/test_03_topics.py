"""Section 3.6: PUB, SUB, UNSUB."""

import time
from collections.abc import Iterator

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import Frame, frame
from tests.support.live import LiveBroker

EVERY_KIND = {
    "nothing": b"",
    "nil": b"\xc0",
    "false": b"\xc2",
    "true": b"\xc3",
    "positive fixint": b"\x7f",
    "negative fixint": b"\xe0",
    "uint 8": b"\xcc\x01",  # longer than it must be, and passed on so
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


@pytest.fixture
def pair(broker: LiveBroker) -> Iterator[tuple[Client, Client]]:
    with Client(broker.address) as publisher, Client(broker.address) as subscriber:
        yield publisher, subscriber


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_0301_a_payload_of_every_kind_passes_byte_for_byte(
    pair: tuple[Client, Client], kind: str
) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("kinds")
    subscriber.expect(publisher.say(fx.PUB, fx.topic("kinds"), payload=EVERY_KIND[kind]))


def test_0302_header_fields_in_any_order_status_and_unknown_fields_pass_byte_for_byte(
    pair: tuple[Client, Client],
) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("fields")
    sent = publisher.say(fx.PUB, fx.status(207), {"colour": "blue"}, fx.topic("fields"))
    subscriber.expect(sent)


def test_0303_reserved_bytes_leave_as_zero(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("reserved")
    sent = publisher.say(fx.PUB, fx.topic("reserved"), payload=b"\x01", reserved=9)
    subscriber.expect(sent[:6] + bytes(16) + sent[22:])


def test_0304_a_publisher_that_subscribes_gets_its_own_message(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.subscribe("own")
        client.expect(client.say(fx.PUB, fx.topic("own"), payload=b"\x01"))


def test_0305_without_echo_it_does_not() -> None:
    with (
        LiveBroker(options=GatewayOptions(echo=False)) as broker,
        Client(broker.address) as client,
        Client(broker.address) as other,
    ):
        client.subscribe("own")
        other.subscribe("own")
        other.expect(client.say(fx.PUB, fx.topic("own"), payload=b"\x01"))
        own = fx.routing((client.number, ""), (other.number, ""))
        client.say(fx.PUB, fx.topic("own"), own)
        assert other.frame().header["routing"] == [{"client_id": other.number, "path": ""}]
        client.settle()


def test_0306_only_subscribers_of_the_topic_get_a_message(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("Case")
    publisher.say(fx.PUB, fx.topic("case"))
    publisher.say(fx.PUB, fx.topic("Case/x"))
    subscriber.expect(publisher.say(fx.PUB, fx.topic("Case")))
    publisher.settle()
    subscriber.settle()


def test_0307_a_second_subscription_changes_nothing(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("twice", "twice")
    subscriber.expect(publisher.say(fx.PUB, fx.topic("twice"), payload=b"\x01"))
    subscriber.expect(publisher.say(fx.PUB, fx.topic("twice"), payload=b"\x02"))
    subscriber.say(fx.UNSUB, fx.topic("twice"))
    subscriber.settle()
    publisher.say(fx.PUB, fx.topic("twice"), payload=b"\x03")
    publisher.settle()
    subscriber.settle()


def test_0308_wildcards_match_levels_and_bring_each_message_once(
    pair: tuple[Client, Client],
) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("wild/+/end", "wild/#", "wild/a/end")
    for name in ("wild/a/end", "wild/b/end", "wild/b"):
        subscriber.expect(publisher.say(fx.PUB, fx.topic(name), payload=b"\x01"))
    subscriber.settle()


def test_0309_after_unsub_not_one_message_more(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("stream")
    burst = b"".join(
        frame(fx.PUB, publisher.number, fx.topic("stream"), fx.pack(i)) for i in range(500)
    )
    publisher.send(burst)
    assert subscriber.frame().value == 0
    subscriber.say(fx.UNSUB, fx.topic("stream"))
    subscriber.say(fx.PING, fx.keepalive(1))
    while subscriber.frame().type == fx.PUB:
        pass
    publisher.send(burst)
    publisher.settle()
    subscriber.settle()


def test_0310_unsub_of_what_one_has_not_is_601(pair: tuple[Client, Client]) -> None:
    client, _ = pair
    client.say(fx.UNSUB, fx.topic("never"))
    client.expect_notice(601)
    client.subscribe("once/a")
    client.say(fx.UNSUB, fx.topic("once/#"))
    client.expect_notice(601)
    client.say(fx.UNSUB, fx.topic("once/a"))
    client.say(fx.UNSUB, fx.topic("once/a"))
    client.expect_notice(601)
    client.settle()


@pytest.mark.parametrize("name", ["", "a/#/b", ">/b"])
def test_0311_a_subscription_that_can_match_nothing_is_603(
    pair: tuple[Client, Client], name: str
) -> None:
    client, _ = pair
    client.say(fx.SUB, fx.topic(name))
    client.expect_notice(603)
    client.settle()


def test_0312_too_many_subscriptions_are_603() -> None:
    settings = BrokerSettings(subscriptions_max=2)
    with LiveBroker(settings=settings) as broker, Client(broker.address) as client:
        client.subscribe("1", "2", "2")
        client.say(fx.SUB, fx.topic("3"))
        client.expect_notice(603)
        client.say(fx.UNSUB, fx.topic("1"))
        client.subscribe("3")


def test_0313_what_the_rules_forbid_is_403_to_publish_and_603_to_subscribe() -> None:
    rules = [
        Rule(allow=True, actions=frozenset({Action.PUBLISH}), pattern="out/#"),
        Rule(allow=True, actions=frozenset({Action.SUBSCRIBE}), pattern="in/#"),
        Rule(allow=True, actions=frozenset(Action), pattern="both"),
    ]
    options = GatewayOptions(anonymous=Principal("guest", rules, default=False))
    with LiveBroker(options=options) as broker, Client(broker.address) as client:
        client.subscribe("both", "in/x")
        for name in ("in/x", "elsewhere"):
            client.say(fx.PUB, fx.topic(name), payload=b"\x01")
            client.expect_notice(403)
            client.say(fx.PUB, fx.topic(name), fx.routing((client.number, "")))
            client.expect_notice(403)
        client.say(fx.SUB, fx.topic("out/x"))
        client.expect_notice(603)
        client.say(fx.PUB, fx.topic("out/x"), payload=b"\x01")
        for _ in range(2):
            client.expect(client.say(fx.PUB, fx.topic("both"), payload=b"\x01"))
        client.settle()


@pytest.mark.parametrize("name", ["", "a/+", "#", "a.*.b"])
def test_0314_a_message_without_a_name_or_with_a_wildcard_is_400(
    pair: tuple[Client, Client], name: str
) -> None:
    client, everything = pair
    everything.subscribe("#")
    client.say(fx.PUB, fx.topic(name), payload=b"\x01")
    client.expect_notice(400)
    client.say(fx.PUB, fx.topic(name), fx.routing((client.number, "")))
    client.expect_notice(400)
    client.settle()
    everything.settle()


def test_0315_a_thousand_messages_in_one_piece_arrive_in_order(
    pair: tuple[Client, Client],
) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("many/#")
    burst = b"".join(
        frame(fx.PUB, publisher.number, fx.topic(f"many/{i % 7}"), fx.pack({"n": i}))
        for i in range(1000)
    )
    publisher.send(burst)
    subscriber.expect(burst)
    subscriber.settle()


def test_0316_messages_cut_into_single_bytes_arrive_whole(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("cut")
    stream = frame(fx.PUB, publisher.number, fx.topic("cut"), fx.pack("first"))
    stream += frame(fx.PING, publisher.number, fx.keepalive(3))
    stream += frame(fx.PUB, publisher.number, fx.topic("cut"), fx.pack("second"))
    for i in range(len(stream)):
        publisher.send(stream[i : i + 1])
    assert publisher.frame().header == fx.keepalive(3)
    assert [subscriber.frame().value for _ in range(2)] == ["first", "second"]


def test_0317_control_and_data_in_one_piece_keep_their_order(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        names = [fx.topic("order")] * 4
        stream = b"".join(
            frame(kind, client.number, name, payload)
            for kind, name, payload in zip(
                (fx.PUB, fx.SUB, fx.PUB, fx.UNSUB), names, (b"\x01", b"", b"\x02", b""), strict=True
            )
        )
        client.send(stream + frame(fx.PUB, client.number, fx.topic("order"), b"\x03"))
        assert client.frame().payload == b"\x02"
        client.settle()


def test_0318_a_large_message_passes(pair: tuple[Client, Client]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("large")
    payload = fx.pack(bytes(range(256)) * 4096)
    started = time.monotonic()
    sent = publisher.say(fx.PUB, fx.topic("large"), payload=payload)
    subscriber.expect(sent)
    assert time.monotonic() - started < 5


# --- PUB with routing -----------------------------------------------------------------------------


def test_0319_a_routed_message_reaches_only_listed_subscribers_each_with_its_path(
    broker: LiveBroker,
) -> None:
    with (
        Client(broker.address) as publisher,
        Client(broker.address) as first,
        Client(broker.address) as second,
        Client(broker.address) as unlisted,
        Client(broker.address) as unsubscribed,
    ):
        first.subscribe("routed/a")
        second.subscribe("routed/+")
        unlisted.subscribe("routed/a")
        entries = [(first.number, "/one"), (unsubscribed.number, "/no"), (second.number, "/two")]
        publisher.say(
            fx.PUB,
            fx.topic("routed/a"),
            fx.status(299),
            fx.routing(*entries),
            payload=b"\xcd\x00\x05",
        )
        for client, path in ((first, "/one"), (second, "/two")):
            expected = fx.topic("routed/a") | fx.status(299) | fx.routing((client.number, path))
            assert client.frame() == Frame(fx.PUB, publisher.number, expected, b"\xcd\x00\x05")
        publisher.settle()
        for client in (first, second, unlisted, unsubscribed):
            client.settle()


def test_0320_a_routed_message_to_clients_that_do_not_exist_is_600_and_reaches_the_others(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as client, Client(broker.address) as other:
        other.subscribe("routed/b")
        entries = [(999, ""), (other.number, "/here"), (4_294_967_295, "")]
        client.say(fx.PUB, fx.topic("routed/b"), fx.routing(*entries))
        text = client.expect_notice(600)
        assert "999" in text
        assert "4294967295" in text
        assert other.frame().header["routing"] == [{"client_id": other.number, "path": "/here"}]
        client.settle()
        other.settle()


def test_0321_a_routed_message_keeps_its_place_among_the_others(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.subscribe("routed/c")
        own = fx.routing((client.number, "/me"))
        stream = b"".join(
            frame(fx.PUB, client.number, fx.topic("routed/c") | (own if i % 3 else {}), fx.pack(i))
            for i in range(60)
        )
        client.send(stream)
        assert [client.frame().value for _ in range(60)] == list(range(60))
