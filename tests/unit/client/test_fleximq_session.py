"""fleximq sessions, byte for byte."""

import itertools
from typing import Any

import pytest

from penstock.client.errors import BadOption, Unsupported
from penstock.client.events import (
    Acknowledged,
    Delivered,
    Event,
    Failed,
    Notified,
    Ready,
    Replied,
    Requested,
)
from penstock.client.options import Credentials
from penstock.client.sessions import Extras
from penstock.client.sessions.fleximq import FleximqSession
from penstock.errors import CallerError, InvalidTopicName, WireError
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from tests.support import fleximq_bytes as fx

ME, OTHER = 1000, 1001
TOKEN, PASSWORD = {"token": "s3cret"}, {"password": "s3cret"}


def clock() -> Any:
    return itertools.repeat(1_700_000_000_000).__next__


def fed(session: FleximqSession, data: bytes) -> list[Event]:
    session.feed(data)
    return list(session.events())


def opened() -> FleximqSession:
    session = FleximqSession(Credentials(), clock())
    session.start()
    assert session.data_to_send() == fx.frame(fx.JOIN, 0)
    assert fed(session, fx.frame(fx.REP, ME, fx.status(200))) == [Ready(ME)]
    return session


def ping(number: int) -> bytes:
    return fx.frame(fx.PING, ME, fx.keepalive(1_700_000_000_000 + number))


def pong(number: int) -> bytes:
    return fx.frame(fx.PONG, fx.BROKER, fx.keepalive(1_700_000_000_000 + number))


def complaint(code: int, text: str) -> bytes:
    header = fx.routing((ME, "/")) | fx.status(code)
    return fx.frame(fx.NOTIF, fx.BROKER, header, fx.pack(text))


@pytest.mark.parametrize(
    ("credentials", "auth"),
    [
        (Credentials(**TOKEN), {"type": "token"} | TOKEN),
        (
            Credentials(username="u", **PASSWORD),
            {"type": "basic", "username": "u"} | PASSWORD,
        ),
        (Credentials(api_key="k"), {"type": "api_key", "api_key": "k"}),
    ],
)
def test_credentials_go_into_join(credentials: Credentials, auth: dict[str, str]) -> None:
    session = FleximqSession(credentials, clock())
    session.start()
    assert session.data_to_send() == fx.frame(fx.JOIN, 0, {"auth": auth})


def test_a_refused_join_is_a_failure_that_belongs_to_no_ticket() -> None:
    session = FleximqSession(Credentials(), clock())
    session.start()
    (event,) = fed(session, fx.frame(fx.REP, 0, fx.status(401), fx.pack("who are you")))
    assert isinstance(event, Failed)
    assert event.ticket is None
    assert (event.error.answer, event.error.text) == (401, "who are you")
    assert not event.error.retriable


@pytest.mark.parametrize("correlated", [{}, fx.correlation("1")], ids=["without", "with"])
def test_the_reply_to_join_may_lack_reqrep(correlated: fx.Header) -> None:
    """Section 2.2.3 forbids it in JOIN, section 4.2 shows it in the reply."""
    session = FleximqSession(Credentials(), clock())
    session.start()
    assert fed(session, fx.frame(fx.REP, ME, fx.status(200) | correlated)) == [Ready(ME)]
    session.publish("t", [b"x"])
    assert session.data_to_send().endswith(fx.frame(fx.PUB, ME, fx.topic("t"), fx.pack(b"x")))


def test_values_are_published_as_bin_and_not_acknowledged() -> None:
    session = opened()
    values = [b"", b"\x00\xff", bytes(300), bytes(70_000)]
    assert len(session.publish("a/b", values)) == 0
    assert session.data_to_send() == b"".join(
        fx.frame(fx.PUB, ME, fx.topic("a/b"), fx.pack(value)) for value in values
    )


def test_status_routing_and_packed_payloads_are_sent() -> None:
    session = opened()
    payload = fx.pack({"a": [1, None, "ü"]})
    session.publish("t", [payload], Extras(status=202, routing={OTHER: "/x"}, packed=True))
    header = fx.routing((OTHER, "/x")) | fx.topic("t") | fx.status(202)
    assert session.data_to_send() == fx.frame(fx.PUB, ME, header, payload)


def test_what_a_broker_would_reject_is_refused_and_sends_nothing() -> None:
    session = opened()
    with pytest.raises(CallerError):
        session.publish("t", [b"\xc1"], Extras(packed=True))
    with pytest.raises(CallerError):
        session.publish("t", [b""], Extras(status=-1))
    with pytest.raises(InvalidTopicName):
        session.publish("t/#", [b""])
    with pytest.raises(BadOption):
        session.canonical(7)
    assert session.data_to_send() == b""


def test_a_subscription_is_confirmed_by_the_pong_behind_it() -> None:
    session = opened()
    ticket = session.subscribe("t/#")
    sent = session.data_to_send()
    end = ping(0) + fx.frame(fx.SUB, ME, fx.topic("t/#")) + ping(1)
    assert sent.endswith(end)
    assert b"/positions" in sent.removesuffix(end)
    assert fed(session, pong(0)) == []
    assert fed(session, pong(1)) == [Acknowledged(ticket)]


def test_an_error_between_the_pongs_is_the_subscriptions() -> None:
    session = opened()
    ticket = session.unsubscribe("t")
    (event,) = fed(session, pong(0) + complaint(601, "no such topic") + pong(1))
    assert isinstance(event, Failed)
    assert (event.ticket, event.error.answer, event.error.text) == (ticket, 601, "no such topic")


def test_an_error_outside_the_pongs_belongs_to_nobody() -> None:
    session = opened()
    ticket = session.subscribe("t")
    before, confirmed, after = fed(
        session, complaint(403, "no") + pong(0) + pong(1) + complaint(403, "no")
    )
    assert isinstance(before, Failed)
    assert isinstance(after, Failed)
    assert before.ticket is after.ticket is None
    assert confirmed == Acknowledged(ticket)


def test_a_lost_pong_is_not_mistaken_for_the_next() -> None:
    session = opened()
    session.ping()
    second, third = session.ping(), session.ping()
    assert fed(session, pong(1)) == [Acknowledged(second)]
    assert fed(session, pong(0)) == []
    assert fed(session, pong(2)) == [Acknowledged(third)]


def test_the_brokers_ping_is_answered_with_its_timestamp() -> None:
    session = opened()
    fed(session, fx.frame(fx.PING, fx.BROKER, fx.keepalive(42, interval=30)))
    assert session.data_to_send() == fx.frame(fx.PONG, ME, fx.keepalive(42))


def test_deliveries_do_not_depend_on_where_the_stream_is_cut() -> None:
    stream = b"".join(
        (
            fx.frame(fx.PUB, OTHER, fx.topic("t"), fx.pack(b"\x00")),
            fx.frame(fx.PUB, OTHER, fx.topic("t"), fx.pack({"a": 1})),
            fx.frame(fx.PUB, OTHER, fx.topic("u") | fx.status(202)),
        )
    )
    for size in (1, 11, len(stream)):
        session = opened()
        found = [
            event.delivery
            for at in range(0, len(stream), size)
            for event in fed(session, stream[at : at + size])
            if isinstance(event, Delivered)
        ]
        assert [(d.topic, d.value, d.payload, d.sender, d.status) for d in found] == [
            ("t", b"\x00", b"\x00", OTHER, None),
            ("t", fx.pack({"a": 1}), {"a": 1}, OTHER, None),
            ("u", b"", None, OTHER, 202),
        ]


def test_a_remembered_header_does_not_hide_a_bad_payload() -> None:
    session = opened()
    fed(session, fx.frame(fx.PUB, OTHER, fx.topic("t"), fx.pack(1)))
    with pytest.raises(WireError):
        fed(session, fx.frame(fx.PUB, OTHER, fx.topic("t"), b"\xc1"))


def test_a_request_has_the_reply_of_its_id() -> None:
    session = opened()
    first = session.request(OTHER, "/sum", fx.pack([1, 2]))
    sent = fx.parse(session.data_to_send())
    assert (sent.type, sent.client_id, sent.payload) == (fx.REQ, ME, fx.pack([1, 2]))
    assert sent.header["routing"] == [{"client_id": OTHER, "path": "/sum"}]
    second = session.request(fx.BROKER, "/time", b"")
    other = fx.parse(session.data_to_send())
    assert sent.header["reqrep"]["id"] != other.header["reqrep"]["id"]
    for ticket, frame in ((second, other), (first, sent)):
        identifier = frame.header["reqrep"]["id"]
        header = fx.routing((ME, "/")) | fx.correlation(identifier)
        (event,) = fed(session, fx.frame(fx.REP, OTHER, header, fx.pack(3)))
        assert isinstance(event, Replied)
        assert (event.ticket, event.reply.payload, event.reply.sender) == (ticket, 3, OTHER)


def test_a_reply_that_reports_failure_fails_its_request_and_one_too_late_is_nothing() -> None:
    session = opened()
    ticket = session.request(OTHER, "/", b"")
    identifier = fx.parse(session.data_to_send()).header["reqrep"]["id"]
    header = fx.routing((ME, "/")) | fx.correlation(identifier) | fx.status(600)
    (event,) = fed(session, fx.frame(fx.REP, fx.BROKER, header))
    assert isinstance(event, Failed)
    assert (event.ticket, event.error.answer) == (ticket, 600)
    assert event.error.text == "CLIENT_NOT_FOUND"
    assert fed(session, fx.frame(fx.REP, fx.BROKER, header)) == []
    forgotten = session.request(OTHER, "/", b"")
    identifier = fx.parse(session.data_to_send()).header["reqrep"]["id"]
    session.forget(forgotten)
    late = fx.routing((ME, "/")) | fx.correlation(identifier)
    assert fed(session, fx.frame(fx.REP, OTHER, late)) == []


def test_a_request_from_another_is_answered_by_its_id() -> None:
    session = opened()
    header = fx.routing((ME, "/sum")) | fx.request("abc")
    (event,) = fed(session, fx.frame(fx.REQ, OTHER, header, fx.pack([1, 2])))
    assert isinstance(event, Requested)
    assert (event.request.path, event.request.payload, event.request.sender) == (
        "/sum", [1, 2], OTHER,
    )  # fmt: skip
    session.reply(event.request, 200, fx.pack(3))
    answer = fx.routing((OTHER, "/sum")) | fx.correlation("abc") | fx.status(200)
    assert session.data_to_send() == fx.frame(fx.REP, ME, answer, fx.pack(3))


def test_notifications_and_broadcasts_go_both_ways() -> None:
    session = opened()
    session.notify({OTHER: "/a", 1002: "/b"}, fx.pack("hi"), 202)
    session.broadcast(fx.pack("all"), None)
    told = fx.frame(
        fx.NOTIF, ME, fx.routing((OTHER, "/a"), (1002, "/b")) | fx.status(202), fx.pack("hi")
    )
    assert session.data_to_send() == told + fx.frame(fx.BCAST, ME, b"", fx.pack("all"))
    events = fed(
        session,
        fx.frame(fx.NOTIF, OTHER, fx.routing((ME, "/a")) | fx.status(600), fx.pack("hi"))
        + fx.frame(fx.BCAST, OTHER, b"", fx.pack("all"))
        + fx.frame(fx.NOTIF, fx.BROKER, fx.routing((ME, "/n")), fx.pack("fine")),
    )
    found = [event.notification for event in events if isinstance(event, Notified)]
    assert [(n.path, n.payload, n.sender, n.status) for n in found] == [
        ("/a", "hi", OTHER, 600),
        (None, "all", OTHER, None),
        ("/n", "fine", fx.BROKER, None),
    ]


def test_what_fleximq_has_not_is_named() -> None:
    session = opened()
    with pytest.raises(Unsupported, match="fleximq has no create_topic"):
        session.create_topic("t")
    with pytest.raises(Unsupported, match="fleximq has no publish"):
        session.publish("t", [b""], Extras(headers=(("a", b""),)))


def test_credentials_that_a_protocol_cannot_carry_are_refused() -> None:
    Credentials(**TOKEN).check(FLEXIMQ)
    Credentials(key=b"k").check(LAMAMQ)
    for protocol in (HERALD, RHEOS1, RHEOS2, LAMAMQ):
        with pytest.raises(Unsupported, match=f"{protocol.label} has no token= credentials"):
            Credentials(**TOKEN).check(protocol)
    with pytest.raises(Unsupported):
        Credentials(key=b"k").check(FLEXIMQ)
    with pytest.raises(BadOption):
        Credentials(username="u").check(FLEXIMQ)
    with pytest.raises(BadOption):
        Credentials(api_key="k", **TOKEN).check(FLEXIMQ)


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials(api_key="s3cret", key=b"s3cret", **TOKEN, **PASSWORD))
    assert "s3cret" not in shown
