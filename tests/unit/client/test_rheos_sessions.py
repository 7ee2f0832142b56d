"""Rheos sessions of both versions, byte for byte."""

import struct
import uuid
import zlib

import pytest

from penstock.client.errors import Unsupported
from penstock.client.events import Acknowledged, Delivered, Event, Failed, Ready
from penstock.client.sessions.rheos import Rheos1Session, Rheos2Session, rheos_client_id
from penstock.errors import FieldOutOfRange, InvalidTopicName, WireError
from penstock.model import message_id
from tests.support.rheos_bytes import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    PUBLISH,
    RHEOS1,
    RHEOS2,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
)

Session = Rheos1Session | Rheos2Session
SESSIONS = [(RHEOS1, Rheos1Session), (RHEOS2, Rheos2Session)]
both = pytest.mark.parametrize(("rheos", "kind"), SESSIONS, ids=["rheos1", "rheos2"])
MESSAGE_ID = bytes(range(16))


def ack(rheos: Rheos, code: int, identifier: bytes = MESSAGE_ID) -> bytes:
    if rheos.version == 1:
        return struct.pack("<B16sB", 0xAC, identifier, code)
    head = struct.pack("<BB16s", 0xAC, code, identifier)
    return head + struct.pack("<I", zlib.crc32(head))


def delivery(rheos: Rheos, name: bytes, payload: bytes, sender: bytes = BOB) -> bytes:
    if rheos.version == 1:
        return struct.pack("<BI16s", 21, len(payload), sender) + payload
    return rheos.request(PUBLISH, name, payload, client=sender)


def fed(session: Session, data: bytes) -> list[Event]:
    session.feed(data)
    return list(session.events())


def opened(rheos: Rheos, kind: type[Session]) -> Session:
    session = kind(ALICE)
    assert session.start() is None
    assert session.data_to_send() == rheos.request(SUBSCRIBE, b"")
    assert fed(session, ack(rheos, FAILED)) == [Ready(None)]
    return session


@both
def test_a_publish_is_acknowledged_with_the_messages_id(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    (ticket,) = session.publish("a/b", [b"\x00\xff"])
    assert session.data_to_send() == rheos.request(PUBLISH, b"a/b", b"\x00\xff")
    assert fed(session, ack(rheos, SUCCESS)) == [Acknowledged(ticket, MESSAGE_ID)]


@both
@pytest.mark.parametrize("code", [SUCCESS, FAILED])
def test_any_answer_to_a_ping_will_do(rheos: Rheos, kind: type[Session], code: int) -> None:
    session = opened(rheos, kind)
    ticket = session.ping()
    assert session.data_to_send() == rheos.request(SUBSCRIBE, b"")
    assert fed(session, ack(rheos, code)) == [Acknowledged(ticket)]
    (refused,) = session.publish("a", [b""])
    (event,) = fed(session, ack(rheos, FAILED))
    assert isinstance(event, Failed)
    assert event.ticket == refused


def test_a_name_that_is_subscribed_again_is_the_same_for_version_1() -> None:
    session = Rheos1Session(ALICE)
    session.subscribe("a@2026-11-01T00:00:00Z")
    session.subscribe("a")
    session.data_to_send()
    session.feed(delivery(RHEOS1, b"", b"1"))
    (event,) = session.events()
    assert isinstance(event, Delivered)
    assert event.delivery.topic == "a"


@both
def test_many_publishes_are_the_bytes_of_each(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    values = [b"", b"a", bytes(300)]
    tickets = session.publish("ä", values)
    expected = b"".join(rheos.request(PUBLISH, "ä".encode(), value) for value in values)
    assert session.data_to_send() == expected
    events = fed(session, ack(rheos, SUCCESS) + ack(rheos, FAILED) + ack(rheos, SUCCESS))
    assert [type(event) for event in events] == [Acknowledged, Failed, Acknowledged]
    assert [event.ticket for event in events if not isinstance(event, Delivered)] == list(tickets)  # type: ignore[union-attr]


@both
def test_answers_come_in_the_order_of_requests(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    created, subscribed = session.create_topic("t"), session.subscribe("t")
    sent = session.data_to_send()
    created_size, subscribed_bytes = (
        len(rheos.request(CREATE, b"t")),
        rheos.request(SUBSCRIBE, b"t"),
    )
    asking = sent[created_size : -len(subscribed_bytes)]
    assert sent == rheos.request(CREATE, b"t") + asking + subscribed_bytes
    assert b"positions" in asking
    first, second = fed(session, ack(rheos, FAILED) + ack(rheos, SUCCESS) * 2)
    assert isinstance(first, Failed)
    assert first.ticket == created
    assert first.error.answer == 1
    assert "exists already" in first.error.text
    assert second == Acknowledged(subscribed)


@both
def test_deliveries_among_acknowledgments_do_not_depend_on_the_cut(
    rheos: Rheos, kind: type[Session]
) -> None:
    stream = ack(rheos, SUCCESS) * 2 + delivery(rheos, b"t", b"\xac\xfa\x15") + ack(rheos, SUCCESS)
    for size in (1, 7, len(stream)):
        session = opened(rheos, kind)
        subscribed = session.subscribe("t")
        (published,) = session.publish("t", [b""])
        events = [
            event
            for at in range(0, len(stream), size)
            for event in fed(session, stream[at : at + size])
        ]
        assert events[0] == Acknowledged(subscribed)
        assert events[2] == Acknowledged(published, MESSAGE_ID)
        assert isinstance(events[1], Delivered)
        found = events[1].delivery
        assert (found.topic, found.value, found.sender) == ("t", b"\xac\xfa\x15", BOB)


@both
def test_positions_are_frames_with_the_key_that_the_session_chose(
    rheos: Rheos, kind: type[Session]
) -> None:
    session = opened(rheos, kind)
    session.subscribe("t")
    word = b"positions"
    sent = session.data_to_send()
    key = sent[sent.index(word) + len(word) :][:16]
    assert fed(session, ack(rheos, SUCCESS)) == []
    payload = struct.pack("<BBHIQQqI", 1, 0, 3, 1, 7, 40, 5_000, 1000)
    marked = delivery(rheos, b"", payload, sender=key) + delivery(rheos, b"t", b"v") * 2
    first, second = fed(session, marked)
    assert isinstance(first, Delivered)
    assert isinstance(second, Delivered)
    assert (first.delivery.partition, first.delivery.offset) == (3, 40)
    assert first.delivery.broker_time_us == 5_000
    assert first.delivery.message_id == uuid.UUID(bytes=message_id(7, partition=3, offset=40))
    assert second.delivery.offset is None


@both
def test_names_that_are_not_utf_8_go_out_as_their_bytes(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    session.publish("a%FF", [b""])
    assert session.data_to_send() == rheos.request(PUBLISH, b"a\xff")


def test_v1_knows_the_topic_of_its_only_subscription_and_of_no_other() -> None:
    def topic(session: Session) -> str | None:
        (event,) = fed(session, delivery(RHEOS1, b"", b"x"))
        assert isinstance(event, Delivered)
        return event.delivery.topic

    session = opened(RHEOS1, Rheos1Session)
    session.subscribe("t")
    session.subscribe("t")
    fed(session, ack(RHEOS1, SUCCESS) * 3)
    assert topic(session) == "t"
    session.subscribe("u")
    fed(session, ack(RHEOS1, SUCCESS))
    assert topic(session) is None
    wild = opened(RHEOS1, Rheos1Session)
    wild.subscribe("t/#")
    fed(wild, ack(RHEOS1, SUCCESS) * 2)
    assert topic(wild) is None
    replayed = opened(RHEOS1, Rheos1Session)
    replayed.subscribe("t@earliest")
    fed(replayed, ack(RHEOS1, SUCCESS) * 2)
    assert topic(replayed) == "t"


@both
def test_what_does_not_fit_is_refused_and_sends_nothing(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    too_long = bytes(65_536 if rheos.version == 1 else 16 * 1024 * 1024)
    with pytest.raises(FieldOutOfRange):
        session.publish("t", [b"fits", too_long])
    for name in ("", "a/+", "#", "t" * 65_536, "a@earliest"):
        with pytest.raises(InvalidTopicName):
            session.publish(name, [b""])
        with pytest.raises(InvalidTopicName):
            session.create_topic(name)
    assert session.data_to_send() == b""


@both
def test_what_rheos_has_not_is_named(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    for operation, call in {
        "unsubscribe": lambda: session.unsubscribe("t"),
        "request": lambda: session.request(1, "/time", b""),
    }.items():
        with pytest.raises(Unsupported) as caught:
            call()
        assert str(caught.value) == f"rheos{rheos.version} has no {operation}"


@both
def test_a_broker_that_breaks_the_protocol_is_no_broker(rheos: Rheos, kind: type[Session]) -> None:
    session = opened(rheos, kind)
    with pytest.raises(WireError):
        fed(session, b"HTTP/1.1 400")


def test_the_same_name_is_the_same_client_id() -> None:
    assert rheos_client_id(str(uuid.UUID(bytes=ALICE))) == ALICE
    assert rheos_client_id("sensor") == rheos_client_id("sensor") != rheos_client_id("other")
    assert rheos_client_id(None) != rheos_client_id(None)
    assert len(rheos_client_id(None)) == 16
