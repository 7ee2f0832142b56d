"""herald sessions, byte for byte."""

import struct

import pytest

from penstock.client.errors import NotAChannel, Refused, Unsupported
from penstock.client.events import Acknowledged, Delivered, Ended, Event, Failed, Ready
from penstock.client.sessions import Extras
from penstock.client.sessions.herald import HeraldSession
from penstock.errors import FieldOutOfRange, OutOfSequence, WireError
from tests.support import herald_bytes as herald

ACK_OK = herald.frame(0x03, struct.pack("<BQ", 0, 4711))


def fed(session: HeraldSession, data: bytes) -> list[Event]:
    session.feed(data)
    return list(session.events())


def opened() -> HeraldSession:
    session = HeraldSession("me")
    session.start()
    session.data_to_send()
    assert fed(session, ACK_OK) == [Ready(4711)]
    return session


def message(channel: int, timestamp: int, value: bytes) -> bytes:
    return herald.frame(0x13, struct.pack("<BQ", channel, timestamp) + value)


def test_it_starts_as_a_subscriber_without_channels() -> None:
    session = HeraldSession("me")
    assert session.start() is None
    assert session.data_to_send() == herald.handshake_sub(b"", b"me@positions")
    assert session.data_to_send() == b""


def test_a_name_that_is_too_long_to_ask_for_positions_is_sent_alone() -> None:
    session = HeraldSession("m" * 250)
    session.start()
    assert session.data_to_send() == herald.handshake_sub(b"", b"m" * 250)


def test_the_handshake_says_where_restored_channels_begin() -> None:
    session = HeraldSession("me")
    session.restoring(["channel/9@2026-11-02T00:00:00Z", "channel/7@2026-11-01T00:00:00Z"])
    session.start()
    asking = b"me@positions,2026-11-01T00:00:00Z"
    assert session.data_to_send() == herald.handshake_sub(b"\x07\x09", asking)
    session.subscribe("channel/7@2026-11-01T00:00:00Z")
    assert session.data_to_send() == herald.PING + herald.subscribe(7) + herald.PING


def test_a_refused_handshake_is_a_failure_that_belongs_to_no_ticket() -> None:
    session = HeraldSession("me")
    session.start()
    (event,) = fed(session, herald.frame(0x03, struct.pack("<BQ", 8, 0)))
    assert isinstance(event, Failed)
    assert event.ticket is None
    assert (event.error.answer, event.error.text) == (8, "UNAUTHORIZED")


def test_the_first_publish_takes_the_role_of_a_publisher_and_waits_for_it() -> None:
    session = opened()
    tickets = session.publish("channel/7", [b"a"])
    assert session.data_to_send() == herald.handshake_pub(7, b"me") + herald.publish(7, b"a")
    assert fed(session, ACK_OK) == [Acknowledged(tickets[0])]
    assert len(session.publish("channel/9", [b"b", b""])) == 0
    assert session.data_to_send() == herald.publish(9, b"b") + herald.publish(9, b"")


def test_a_refused_role_is_the_first_publishes_failure() -> None:
    session = opened()
    (ticket,) = session.publish("channel/7", [b"a"])
    (event,) = fed(session, herald.frame(0x03, struct.pack("<BQ", 2, 0)))
    assert isinstance(event, Failed)
    assert (event.ticket, event.error.text) == (ticket, "CHANNEL_NOT_FOUND")


def test_a_subscription_is_confirmed_by_the_pong_behind_it() -> None:
    session = opened()
    ticket = session.subscribe("channel/7")
    assert session.data_to_send() == herald.PING + herald.subscribe(7) + herald.PING
    assert fed(session, herald.PONG) == []
    assert fed(session, herald.PONG) == [Acknowledged(ticket)]


def test_an_error_between_the_pongs_is_the_subscriptions() -> None:
    session = opened()
    ticket = session.subscribe("channel/7")
    (event,) = fed(session, herald.PONG + herald.error(8) + herald.PONG)
    assert isinstance(event, Failed)
    assert (event.ticket, event.error.answer) == (ticket, 8)


def test_an_error_before_the_pongs_is_not_the_subscriptions() -> None:
    session = opened()
    session.publish("channel/1", [b"x"])
    ticket = session.subscribe("channel/7")
    events = fed(session, ACK_OK + herald.error(2) + herald.PONG + herald.PONG)
    assert [type(event) for event in events] == [Acknowledged, Failed, Acknowledged]
    assert isinstance(events[1], Failed)
    assert events[1].ticket is None
    assert events[2] == Acknowledged(ticket)


def test_unsubscribing_is_confirmed_the_same_way() -> None:
    session = opened()
    ticket = session.unsubscribe("channel/7")
    assert session.data_to_send() == herald.PING + herald.unsubscribe(7) + herald.PING
    assert fed(session, herald.PONG + herald.PONG) == [Acknowledged(ticket)]


def test_pings_are_answered_in_order_and_pongs_nobody_asked_for_are_nothing() -> None:
    session = opened()
    assert fed(session, herald.PONG) == []
    first, second = session.ping(), session.ping()
    assert session.data_to_send() == herald.PING * 2
    assert fed(session, herald.PONG * 2) == [Acknowledged(first), Acknowledged(second)]


def test_the_brokers_ping_is_answered() -> None:
    session = opened()
    assert fed(session, herald.PING) == []
    assert session.data_to_send() == herald.PONG


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_deliveries_do_not_depend_on_where_the_stream_is_cut(size: int) -> None:
    session = opened()
    stream = message(7, 1_700_000_000_000_001, b"\x00\xff") + message(255, 2, b"")
    events = [
        event
        for at in range(0, len(stream), size)
        for event in fed(session, stream[at : at + size])
    ]
    found = [event.delivery for event in events if isinstance(event, Delivered)]
    assert [(d.topic, d.value, d.timestamp_us, d.sender) for d in found] == [
        ("channel/7", b"\x00\xff", 1_700_000_000_000_001, None),
        ("channel/255", b"", 2, None),
    ]


def test_who_stops_early_gets_the_rest_the_next_time() -> None:
    session = opened()
    session.feed(b"".join(message(7, 0, bytes([number])) for number in range(5)))
    for event in session.events():
        assert isinstance(event, Delivered)
        if event.delivery.value == b"\x01":
            break
    values = [event.delivery.value for event in session.events() if isinstance(event, Delivered)]
    assert values == [b"\x02", b"\x03", b"\x04"]


def test_a_goodbye_is_said_and_heard() -> None:
    session = opened()
    session.goodbye()
    assert session.data_to_send() == herald.DISCONNECT
    assert fed(session, herald.DISCONNECT) == [Ended()]


def test_a_broker_that_breaks_the_protocol_is_no_broker() -> None:
    session = HeraldSession("me")
    session.start()
    with pytest.raises(OutOfSequence):
        fed(session, message(7, 0, b"before the handshake"))
    with pytest.raises(WireError):
        fed(opened(), b"HTTP/1.1 400")


@pytest.mark.parametrize("topic", ["news", "channel/256", "channel/07", "channel/", 256, -1, True])
def test_only_channels_are_topics(topic: str | int) -> None:
    with pytest.raises(NotAChannel):
        opened().canonical(topic)


def test_channels_have_a_number_and_a_name() -> None:
    assert opened().canonical(7) == opened().canonical("channel/7") == "channel/7"


def test_what_does_not_fit_is_refused_and_sends_nothing() -> None:
    session = opened()
    with pytest.raises(FieldOutOfRange):
        session.publish("channel/7", [b"fits", bytes(1_048_576)])
    assert session.data_to_send() == b""


def test_what_herald_has_not_is_named() -> None:
    session = opened()
    calls = {
        "create_topic": lambda: session.create_topic("channel/7"),
        "request": lambda: session.request(1, "/time", b""),
        "notify": lambda: session.notify({1000: "/"}, b"", None),
        "broadcast": lambda: session.broadcast(b"", None),
        "middleware": lambda: session.unregister("x"),
        "publish(headers=…)": lambda: session.publish(
            "channel/7", [b""], Extras(headers=(("a", b"b"),))
        ),
        "publish(status=…)": lambda: session.publish("channel/7", [b""], Extras(status=200)),
        "publish(payload=…)": lambda: session.publish("channel/7", [b""], Extras(packed=True)),
    }
    for operation, call in calls.items():
        with pytest.raises(Unsupported) as caught:
            call()
        assert (caught.value.protocol, caught.value.operation) == ("herald", operation)
    assert session.data_to_send() == b""


def test_a_full_broker_may_be_tried_again_a_forbidden_one_not() -> None:
    assert Refused(HeraldSession.protocol, 4, "").retriable
    assert not Refused(HeraldSession.protocol, 8, "").retriable
