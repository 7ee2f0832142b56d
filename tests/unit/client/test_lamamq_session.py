"""LamaMQ sessions, byte for byte."""

import pytest

from penstock.client.errors import Unsupported
from penstock.client.events import Acknowledged, Delivered, Event, Failed, HookCalled, Ready
from penstock.client.sessions import Extras
from penstock.client.sessions.base import Hook
from penstock.client.sessions.lamamq import LamamqSession
from penstock.errors import FieldOutOfRange, WireError
from penstock.wire.lamamq import HasHeader, HeaderIs, HookStrategy, HookType, TopicIs
from tests.support import lamamq_bytes as lama

NOW = 1_700_000_000
BROKER = lama.BROKER_BIT


def fed(session: LamamqSession, data: bytes) -> list[Event]:
    session.feed(data)
    return list(session.events())


def greeted(key: bytes | None = None) -> LamamqSession:
    session = LamamqSession("me", key, lambda: NOW)
    assert session.start() is None
    assert session.data_to_send() == lama.authentication(b"me", key)
    assert fed(session, lama.OFFER) == []
    assert session.data_to_send() == lama.CHOICE + lama.unsubscribe(1, b"")
    return session


def opened() -> LamamqSession:
    session = greeted()
    assert fed(session, lama.answer(1, 2, b"not subscribed")) == [Ready(None)]
    return session


def test_a_key_goes_out_with_the_name_and_the_choice_waits_for_the_offer() -> None:
    greeted(b"secret")


def test_a_refusal_at_any_point_of_the_handshake_belongs_to_no_ticket() -> None:
    session = LamamqSession("me", None, lambda: NOW)
    session.start()
    for refused in (session, greeted()):
        (event,) = fed(refused, lama.answer(0, 2, b"not let in"))
        assert isinstance(event, Failed)
        assert event.ticket is None
        assert (event.error.answer, event.error.text) == (2, "not let in")


def test_versions_that_are_not_spoken_here_are_refused() -> None:
    session = LamamqSession("me", None, lambda: NOW)
    session.start()
    session.data_to_send()
    (event,) = fed(session, b"\x03\x00\x02\x00")
    assert isinstance(event, Failed)
    assert session.data_to_send() == b""


def test_a_push_is_answered_by_its_id() -> None:
    session = opened()
    (ticket,) = session.publish("a.b", [b"\x00\xff"], Extras(headers=(("k", b"v"), ("k", b""))))
    assert session.data_to_send() == lama.push(
        ticket, b"a.b", b"\x00\xff", headers=[(b"k", b"v"), (b"k", b"")], created_at=NOW
    )
    assert fed(session, lama.answer(ticket)) == [Acknowledged(ticket)]


@pytest.mark.parametrize("error", [None, 2])
def test_any_answer_to_a_ping_will_do(error: int | None) -> None:
    session = opened()
    ticket = session.ping()
    assert session.data_to_send() == lama.unsubscribe(ticket, b"")
    answer = lama.answer(ticket) if error is None else lama.answer(ticket, error, b"no")
    assert fed(session, answer) == [Acknowledged(ticket)]
    assert isinstance(fed(session, lama.answer(0, 2, b"no"))[0], Failed)


def test_many_pushes_are_the_bytes_of_each_and_answers_may_come_in_any_order() -> None:
    session = opened()
    values = [b"", b"a", bytes(300)]
    tickets = list(session.publish("t", values))
    assert session.data_to_send() == b"".join(
        lama.push(ticket, b"t", value) for ticket, value in zip(tickets, values, strict=True)
    )
    last, first, middle = fed(
        session,
        lama.answer(tickets[2]) + lama.answer(tickets[0]) + lama.answer(tickets[1], 4, b"no"),
    )
    assert (last, first) == (Acknowledged(tickets[2]), Acknowledged(tickets[0]))
    assert isinstance(middle, Failed)
    assert (middle.ticket, middle.error.answer, middle.error.text) == (tickets[1], 4, "no")


def test_ids_keep_their_top_bit_clear_when_they_start_over() -> None:
    session = opened()
    session._next_ticket = 0x7FFF_FFFE
    (ticket,) = session.publish("t", [b""])
    (wrapped,) = session.publish("t", [b""])
    assert ticket == 0x7FFF_FFFE
    assert wrapped == 1


def test_subscriptions_are_answered() -> None:
    session = opened()
    first, second = session.subscribe("t.#"), session.unsubscribe("t.#")
    sent = session.data_to_send()
    end = lama.subscribe(first, b"t.#") + lama.unsubscribe(second, b"t.#")
    assert sent.endswith(end)
    asking = sent.removesuffix(end)
    assert b"penstock-positions" in asking
    assert fed(session, lama.answer(int.from_bytes(asking[:4], "big"))) == []
    assert fed(session, lama.answer(first) + lama.answer(second)) == [
        Acknowledged(first),
        Acknowledged(second),
    ]


def test_deliveries_do_not_depend_on_where_the_stream_is_cut() -> None:
    stream = lama.forward(BROKER, b"t", b"\x00", headers=[(b"k", b"v")]) + lama.forward(
        BROKER + 1, b"u", kind=lama.EMPTY
    )
    for size in (1, 5, len(stream)):
        session = opened()
        found = [
            event.delivery
            for at in range(0, len(stream), size)
            for event in fed(session, stream[at : at + size])
            if isinstance(event, Delivered)
        ]
        assert [(d.topic, d.value, d.headers, d.timestamp_us, d.sender) for d in found] == [
            ("t", b"\x00", (("k", b"v"),), NOW * 1_000_000, None),
            ("u", b"", (), NOW * 1_000_000, None),
        ]


def test_a_hook_is_registered_with_all_it_says() -> None:
    session = opened()
    hook = Hook(
        "guard",
        HookType.MESSAGE_PUSHED,
        priority=3,
        timeout_ms=250,
        strategy=HookStrategy.WAIT_OR_GO_ON,
        conditions=(TopicIs("t"), HeaderIs("k", b"v"), HasHeader("h")),
    )
    ticket = session.register(hook)
    assert session.data_to_send() == lama.register(
        ticket,
        b"guard",
        lama.PUSHED,
        lama.topic_is(b"t"),
        lama.header_is(b"k", b"v"),
        lama.has_header(b"h"),
        strategy=lama.WAIT_OR_GO_ON,
        priority=3,
        timeout_ms=250,
    )
    gone = session.unregister("guard")
    assert session.data_to_send() == lama.unregister(gone, b"guard")


def call_of(session: LamamqSession, name: bytes, identifier: int = BROKER + 5) -> Event:
    headers = [
        (b"penstock-hook", name),
        (b"penstock-event", b"push"),
        (b"penstock-client", b"c"),
        (b"penstock-protocol", b"herald"),
    ]
    (event,) = fed(session, lama.forward(identifier, b"t", b"v", headers=headers))
    return event


def test_a_hook_call_is_let_pass_or_refused() -> None:
    session = opened()
    session.register(Hook("guard", HookType.MESSAGE_PUSHED))
    session.data_to_send()
    event = call_of(session, b"guard")
    assert isinstance(event, HookCalled)
    assert (event.call.hook, event.call.topic, event.call.value) == ("guard", "t", b"v")
    assert (event.call.event, event.call.client, event.call.protocol) == ("push", "c", "herald")
    session.answer_hook(event.call, None)
    session.answer_hook(event.call, "no")
    assert session.data_to_send() == lama.answer(BROKER + 5) + lama.answer(
        BROKER + 5, lama.REFUSED, b"no"
    )


def test_what_is_only_told_is_not_answered() -> None:
    session = opened()
    session.register(Hook("log", HookType.MESSAGE_PUSHED, strategy=HookStrategy.TELL))
    session.data_to_send()
    event = call_of(session, b"log")
    assert isinstance(event, HookCalled)
    session.answer_hook(event.call, None)
    assert session.data_to_send() == b""


def test_a_call_on_its_way_while_the_hook_goes_is_still_a_call_and_others_are_deliveries() -> None:
    session = opened()
    session.register(Hook("guard", HookType.MESSAGE_PUSHED))
    session.unregister("guard")
    assert isinstance(call_of(session, b"guard"), HookCalled)
    assert isinstance(call_of(session, b"another"), Delivered)
    assert isinstance(call_of(opened(), b"guard"), Delivered)


def test_what_does_not_fit_is_refused_and_sends_nothing() -> None:
    session = opened()
    with pytest.raises(FieldOutOfRange):
        session.publish("t", [b"fits", bytes(16 * 1024 * 1024 + 1)])
    with pytest.raises(FieldOutOfRange):
        session.publish("t", [b""], Extras(headers=tuple((str(n), b"") for n in range(65_536))))
    with pytest.raises(FieldOutOfRange):
        session.register(Hook("x" * 256, HookType.CONNECT))
    assert session.data_to_send() == b""


def test_an_answer_that_nobody_awaits_ends_the_session() -> None:
    with pytest.raises(WireError):
        fed(opened(), lama.answer(77))


def test_what_lamamq_has_not_is_named() -> None:
    session = opened()
    with pytest.raises(Unsupported, match="lamamq has no publish"):
        session.publish("t", [b""], Extras(status=200))
