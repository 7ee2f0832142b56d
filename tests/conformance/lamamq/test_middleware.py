"""Middleware over a socket, case by case: hooks of every type and strategy, on every protocol."""

import struct
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.support import fleximq_bytes, herald_bytes, rheos_bytes
from tests.support.herald_bytes import HeraldPeer
from tests.support.lamamq_bytes import (
    BAD_REQUEST,
    BIG,
    BROKER_BIT,
    BUFFER,
    CHOICE,
    CONNECT,
    DISCONNECT,
    EMPTY,
    LITTLE,
    OFFER,
    PUSHED,
    REFUSED,
    REGISTERED,
    STRING,
    SUBSCRIBED,
    TELL,
    TIMEOUT,
    UNREGISTERED,
    UNSUBSCRIBED,
    WAIT_OR_GO_ON,
    WAIT_OR_REFUSE,
    LamaPeer,
    answer,
    authentication,
    client,
    forward,
    has_header,
    header_is,
    push,
    register,
    subscribe,
    subscriber,
    topic_is,
    unregister,
    unsubscribe,
)
from tests.support.live import LiveBroker, Peer

UNAUTHORIZED = 8
SHORT_MS = 60


@pytest.fixture
def broker() -> Iterator[LiveBroker]:
    """A broker of its own for each case: hooks are everybody's business."""
    with LiveBroker() as live:
        yield live


def middleware(broker: LiveBroker, *registrations: bytes, order: str = BIG) -> LamaPeer:
    peer = client(broker, b"middleware", order=order)
    for registration in registrations:
        peer.request(registration)
    return peer


def judged(broker: LiveBroker) -> int:
    """How many messages left the batch path."""
    return broker.call(lambda: broker.server.broker.hooks.messages_judged)  # type: ignore[no-any-return]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "the condition does not become true"
        time.sleep(0.005)


def hooks_gone(broker: LiveBroker) -> None:
    wait_until(lambda: broker.call(lambda: len(broker.server.broker.hooks)) == 0)


# --- Registering ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [BIG, LITTLE], ids=["big", "little"])
@pytest.mark.parametrize(
    "hook_type",
    [CONNECT, DISCONNECT, PUSHED, SUBSCRIBED, UNSUBSCRIBED, REGISTERED, UNREGISTERED],
)
def test_01_every_type_is_registered_and_unregistered(
    broker: LiveBroker, hook_type: int, order: str
) -> None:
    with client(broker, order=order) as peer:
        for strategy in (TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON):
            peer.request(register(0, b"h", hook_type, strategy=strategy, order=order))
            peer.request(unregister(0, b"h", order=order))


def test_02_a_name_is_taken_for_everybody(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", PUSHED)) as one, client(broker) as two:
        for peer in (one, two):
            text = peer.request(register(0, b"h", CONNECT), error=BAD_REQUEST)
            assert text == b"hook 'h': the name is taken"


def test_03_only_its_own_hooks_can_a_client_unregister(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", PUSHED)) as one, client(broker) as two:
        for name in (b"h", b"unknown"):
            text = two.request(unregister(0, name), error=BAD_REQUEST)
            assert text == b"hook '%s': not registered by this client" % name
        one.request(unregister(0, b"h"))
        one.request(unregister(0, b"h"), error=BAD_REQUEST)
        two.request(register(0, b"h", PUSHED))


def test_04_a_timeout_above_the_limit_is_error_2(broker: LiveBroker) -> None:
    with client(broker) as peer:
        peer.request(register(0, b"h", PUSHED, timeout_ms=60_001), error=BAD_REQUEST)
        peer.request(register(0, b"h", PUSHED, timeout_ms=60_000))


def test_05_who_may_not_subscribe_may_not_hook() -> None:
    hidden = Rule(allow=False, actions=frozenset({Action.SUBSCRIBE}), pattern="hidden/#")
    options = GatewayOptions(anonymous=Principal("guest", [hidden]))
    with LiveBroker(options=options) as live, client(live) as peer:
        peer.request(register(0, b"h", PUSHED), error=BAD_REQUEST)
        peer.request(register(0, b"h", CONNECT), error=BAD_REQUEST)
        peer.request(register(0, b"h", PUSHED, topic_is(b"hidden/x")), error=BAD_REQUEST)
        peer.request(register(0, b"h", PUSHED, topic_is(b"open/x")))


# --- Messages: what is asked, and what comes of the answer ----------------------------------------


@pytest.mark.parametrize("order", [BIG, LITTLE], ids=["big", "little"])
@pytest.mark.parametrize("from_order", [BIG, LITTLE], ids=["from-big", "from-little"])
@pytest.mark.parametrize(
    ("kind", "payload"), [(EMPTY, b""), (STRING, b"21.5"), (STRING, b""), (BUFFER, bytes(range(256)))]
)  # fmt: skip
def test_10_a_call_is_the_message_behind_four_headers(
    broker: LiveBroker, order: str, from_order: str, kind: int, payload: bytes
) -> None:
    own = [(b"unit", b"C"), (b"unit", b"F")]
    with (
        middleware(broker, register(0, b"units", PUSHED, order=order), order=order) as hooking,
        client(broker, b"meter-3", order=from_order) as peer,
    ):
        more = {"kind": kind, "created_at": 0xFEDCBA98}
        peer.send(push(7, b"plant/temp", payload, headers=own, order=from_order, **more))
        call = [
            (b"penstock-hook", b"units"),
            (b"penstock-event", b"push"),
            (b"penstock-client", b"meter-3"),
            (b"penstock-protocol", b"lamamq"),
        ]
        identifier = hooking.receive(4)
        assert int.from_bytes(identifier, "big" if order == BIG else "little") & BROKER_BIT
        hooking.expect(
            forward(0, b"plant/temp", payload, headers=call + own, order=order, **more)[4:]
        )
        hooking.send(identifier + b"\x00")
        peer.expect(answer(7, order=from_order))


def test_11_a_message_that_passes_is_delivered_as_it_came(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED)) as hooking,
        subscriber(broker, b"t") as listener,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t", b"x", kind=STRING, headers=[(b"k", b"v")]))
        call = hooking.called(b"h", b"push")
        listener.settle()
        peer.expect_nothing(0.05)
        hooking.answer(call)
        assert listener.forwarded()[1:] == (1_700_000_000, b"t", [(b"k", b"v")], STRING, b"x")
        peer.expect_answer(1)


@pytest.mark.parametrize("strategy", [WAIT_OR_REFUSE, WAIT_OR_GO_ON])
@pytest.mark.parametrize("error", [1, 2, 3, 4])
def test_12_a_message_that_is_refused_is_error_4_with_the_middlewares_text(
    broker: LiveBroker, strategy: int, error: int
) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED, strategy=strategy)) as hooking,
        subscriber(broker, b"t") as listener,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t", b"x") + push(2, b"t", b"y"))
        hooking.answer(hooking.called(b"h", b"push"), error, "kein °F".encode())
        assert peer.expect_answer(1, REFUSED) == "kein °F".encode()
        hooking.answer(hooking.called(b"h", b"push"), error)
        assert peer.expect_answer(2, REFUSED) == b"refused by hook 'h'"
        listener.settle()


def test_13_an_answer_that_is_not_valid_refuses_and_is_not_answered(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", PUSHED)) as hooking, client(broker) as peer:
        peer.send(push(1, b"t") + push(2, b"t"))
        hooking.answer(hooking.called(b"h", b"push"), 77, b"what")
        assert peer.expect_answer(1, REFUSED) == b"bad request: unknown error code 77"
        hooking.answer(hooking.called(b"h", b"push"), 4, b"\xff")
        assert b"not UTF-8" in peer.expect_answer(2, REFUSED)
        hooking.settle()


def test_14_tell_goes_on_at_once_and_an_answer_changes_nothing(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED, strategy=TELL, timeout_ms=0)) as hooking,
        subscriber(broker, b"t") as listener,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t", b"x") + push(2, b"t", b"y"))
        peer.expect(answer(1) + answer(2))
        calls = [hooking.called(b"h", b"push") for _ in range(2)]
        assert [call.payload for call in calls] == [b"x", b"y"]
        hooking.answer(calls[1], REFUSED, b"too late")
        hooking.settle()
        assert [listener.forwarded().payload for _ in range(2)] == [b"x", b"y"]


def test_15_wait_or_refuse_without_an_answer_is_error_3(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, timeout_ms=SHORT_MS)
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"t") as listener,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t", b"x"))
        assert peer.expect_answer(1, TIMEOUT) == b"hook 'h' gave no answer"
        hooking.answer(hooking.called(b"h", b"push"))  # late: read as an answer, and dropped
        hooking.settle()
        listener.settle()
        peer.send(push(2, b"t", b"y"))
        hooking.answer(hooking.called(b"h", b"push"))
        peer.expect_answer(2)
        assert listener.forwarded().payload == b"y"


def test_16_wait_or_go_on_without_an_answer_goes_on(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, strategy=WAIT_OR_GO_ON, timeout_ms=SHORT_MS)
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"t") as listener,
        client(broker) as peer,
    ):
        start = time.monotonic()
        peer.send(push(1, b"t", b"x"))
        peer.expect_answer(1)
        assert time.monotonic() - start >= SHORT_MS / 1000
        assert listener.forwarded().payload == b"x"
        hooking.answer(hooking.called(b"h", b"push"), REFUSED, b"late")
        hooking.settle()


def test_17_hooks_run_by_priority_and_then_by_registration(broker: LiveBroker) -> None:
    hooks = [(b"last", 9), (b"second", 5), (b"third", 5), (b"first", 0)]
    registrations = [register(0, name, PUSHED, priority=priority) for name, priority in hooks]
    with middleware(broker, *registrations) as hooking, client(broker) as peer:
        peer.send(push(1, b"t"))
        for name in (b"first", b"second", b"third", b"last"):
            call = hooking.called(name, b"push")
            hooking.expect_nothing(0.02)
            hooking.answer(call)
        peer.expect_answer(1)


def test_18_a_hook_sees_only_what_those_before_it_let_pass(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"one", PUSHED, priority=1)) as one,
        middleware(
            broker,
            register(0, b"two", PUSHED, priority=2),
            register(0, b"ear", PUSHED, priority=3, strategy=TELL),
        ) as two,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t", b"x") + push(2, b"t", b"y") + push(3, b"t", b"z"))
        one.answer(one.called(b"one", b"push"), REFUSED, b"no")
        assert peer.expect_answer(1, REFUSED) == b"no"
        one.answer(one.called(b"one", b"push"))
        call = two.called(b"two", b"push")
        assert call.payload == b"y"
        two.answer(call, REFUSED, b"never")
        assert peer.expect_answer(2, REFUSED) == b"never"
        one.answer(one.called(b"one", b"push"))
        two.answer(two.called(b"two", b"push"))
        peer.expect_answer(3)
        assert two.called(b"ear", b"push").payload == b"z"


def test_19_a_message_with_no_room_for_a_calls_headers_gets_no_answer(broker: LiveBroker) -> None:
    full = [(b"h", b"%d" % n) for n in range(253)]
    with middleware(broker, register(0, b"h", PUSHED)) as hooking, client(broker) as peer:
        peer.send(push(1, b"t", headers=full) + push(2, b"t", headers=full[:252]))
        peer.expect_answer(1, TIMEOUT)
        call = hooking.called(b"h", b"push")
        assert call.headers[4:] == full[:252]
        hooking.answer(call)
        peer.expect_answer(2)


# --- Conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [BIG, LITTLE], ids=["big", "little"])
def test_20_all_conditions_must_hold(broker: LiveBroker, order: str) -> None:
    conditions = [
        topic_is(b"t", order=order),
        header_is(b"unit", b"C", order=order),
        has_header(b"site", order=order),
    ]
    hook = register(0, b"h", PUSHED, *conditions, strategy=TELL, order=order)
    with middleware(broker, hook, order=order) as hooking, client(broker) as peer:
        unit, site = (b"unit", b"C"), (b"site", b"")
        peer.send(
            push(1, b"t", b"1", headers=[unit])
            + push(2, b"t", b"2", headers=[site])
            + push(3, b"t/2", b"3", headers=[unit, site])
            + push(4, b"t", b"4", headers=[(b"unit", b"F"), site])
            + push(5, b"t", b"5", headers=[site, (b"unit", b"F"), unit])
            + push(6, b"t", b"6")
            + push(7, b"t", b"7", headers=[unit, site])
        )
        peer.expect(b"".join(answer(n) for n in range(1, 8)))
        assert [hooking.called(b"h", b"push").payload for _ in range(2)] == [b"5", b"7"]
        hooking.settle()


def test_21_two_topics_at_once_no_message_has(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"a"), topic_is(b"b"))
    with middleware(broker, hook), client(broker) as peer:
        peer.send(push(1, b"a") + push(2, b"b"))
        peer.expect(answer(1) + answer(2))


# --- The batch path -------------------------------------------------------------------------------


def test_30_without_hooks_no_message_leaves_the_batch_path(broker: LiveBroker) -> None:
    with client(broker) as peer:
        peer.send(b"".join(push(n, b"t/%d" % (n % 9)) for n in range(500)))
        peer.expect(b"".join(answer(n) for n in range(500)))
        assert judged(broker) == 0


def test_31_with_a_hook_on_one_topic_only_that_one_leaves_it(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"t/3"), strategy=TELL)
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"#") as listener,
        client(broker) as peer,
    ):
        peer.send(b"".join(push(n, b"t/%d" % (n % 9), b"%d" % n) for n in range(90)))
        peer.expect(b"".join(answer(n) for n in range(90)))
        assert [listener.forwarded().payload for _ in range(90)] == [b"%d" % n for n in range(90)]
        assert judged(broker) == 10
        assert [int(hooking.called(b"h", b"push").payload) for _ in range(10)] == list(
            range(3, 90, 9)
        )
        hooking.request(unregister(0, b"h"))
        peer.request(push(0, b"t/3"))
        assert judged(broker) == 10


def test_32_a_hook_on_headers_leaves_protocols_without_headers_alone(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, has_header(b"k"))
    with middleware(broker, hook), herald_bytes.publisher(broker) as peer:
        peer.send(b"".join(herald_bytes.publish(7, b"%d" % n) for n in range(100)))
        peer.settle()
        assert judged(broker) == 0


def test_33_a_hook_that_comes_later_sees_topics_that_were_known_before(broker: LiveBroker) -> None:
    with client(broker) as peer, client(broker, b"middleware") as hooking:
        peer.request(push(0, b"t"))
        hooking.request(register(0, b"h", PUSHED, topic_is(b"t")))
        peer.send(push(1, b"t"))
        hooking.answer(hooking.called(b"h", b"push"), REFUSED, b"no")
        peer.expect_answer(1, REFUSED)


def test_34_hooks_and_rules_work_together() -> None:
    secret = Rule(allow=False, actions=frozenset({Action.PUBLISH}), pattern="secret/#")
    options = GatewayOptions(anonymous=Principal("guest", [secret]))
    with (
        LiveBroker(options=options) as live,
        middleware(live, register(0, b"h", PUSHED, topic_is(b"t"))) as hooking,
        client(live) as peer,
    ):
        peer.send(push(1, b"secret/x") + push(2, b"u") + push(3, b"t") + push(4, b"u"))
        peer.expect_answer(1, BAD_REQUEST)
        peer.expect_answer(2)
        hooking.answer(hooking.called(b"h", b"push"))
        peer.expect(answer(3) + answer(4))
        hooking.request(unregister(0, b"h"))
        peer.send(push(5, b"secret/x") + push(6, b"t"))
        peer.expect_answer(5, BAD_REQUEST)
        peer.expect_answer(6)


# --- Order, and everybody else --------------------------------------------------------------------


def test_40_a_client_that_is_waited_for_keeps_its_order(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"hooked"))
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"#") as listener,
        client(broker) as peer,
    ):
        peer.send(
            b"".join(push(n, b"hooked" if n % 3 == 0 else b"free", b"%d" % n) for n in range(30))
            + subscribe(30, b"late")
            + push(31, b"late", b"31")
        )
        for n in range(0, 30, 3):
            call = hooking.called(b"h", b"push")
            assert call.payload == b"%d" % n
            hooking.answer(call, REFUSED if n == 15 else 0, b"no")
        for n in range(31):
            peer.expect_answer(n, REFUSED if n == 15 else 0)
        assert peer.forwarded().payload == b"31"
        peer.expect_answer(31)
        passed = [b"%d" % n for n in (*range(15), *range(16, 30), 31)]
        assert [listener.forwarded().payload for _ in passed] == passed


def test_41_others_go_on_while_one_waits(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"hooked"))
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"#") as listener,
        client(broker) as waiting,
        client(broker) as other,
    ):
        waiting.send(push(1, b"hooked", b"slow") + push(2, b"free", b"behind"))
        call = hooking.called(b"h", b"push")
        for n in range(50):
            other.request(push(0, b"free", b"%d" % n))
            assert listener.forwarded().payload == b"%d" % n
        hooking.answer(call)
        waiting.expect(answer(1) + answer(2))
        assert [listener.forwarded().payload for _ in range(2)] == [b"slow", b"behind"]


def test_42_answers_may_come_in_any_order(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED)) as hooking,
        client(broker, b"1") as one,
        client(broker, b"2") as two,
    ):
        one.send(push(1, b"t"))
        first = hooking.called(b"h", b"push")
        two.send(push(2, b"t"))
        second = hooking.called(b"h", b"push")
        hooking.answer(second, REFUSED, b"two")
        assert two.expect_answer(2, REFUSED) == b"two"
        hooking.answer(first, REFUSED, b"one")
        assert one.expect_answer(1, REFUSED) == b"one"


def test_43_a_middleware_does_not_hook_what_it_does_itself(broker: LiveBroker) -> None:
    hooks = [
        register(0, b"%d" % kind, kind)
        for kind in (REGISTERED, UNREGISTERED, SUBSCRIBED, UNSUBSCRIBED, PUSHED)
    ]
    with middleware(broker, *hooks) as peer:
        peer.request(subscribe(0, b"own"))
        peer.send(push(1, b"own", b"x"))
        assert peer.forwarded()[2:] == (b"own", [], BUFFER, b"x")
        peer.expect_answer(1)
        peer.request(unsubscribe(0, b"own"))
        peer.request(unregister(0, b"%d" % PUSHED))


def test_44_a_middleware_may_push_under_ids_like_the_brokers(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"t"))
    with middleware(broker, hook) as hooking, client(broker) as peer:
        peer.send(push(1, b"t"))
        call = hooking.called(b"h", b"push")
        other = (call.identifier + 5) | BROKER_BIT
        hooking.send(push(other, b"u", b"x") + push(3, b"u"))
        hooking.expect(answer(other) + answer(3))
        hooking.answer(call)
        peer.expect_answer(1)


def test_45_answers_and_pushes_of_a_middleware_may_come_in_one_stream(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"t"))
    with middleware(broker, hook) as hooking, client(broker) as one, client(broker) as two:
        one.send(push(1, b"t"))
        two.send(push(1, b"t"))
        calls = [hooking.called(b"h", b"push") for _ in range(2)]
        hooking.send(
            push(1, b"u")
            + answer(calls[0].identifier)
            + push(2, b"u")
            + answer(calls[1].identifier, REFUSED, b"no")
            + push(3, b"u")
        )
        hooking.expect(answer(1) + answer(2) + answer(3))
        answers = sorted([one.receive(5), two.receive(5)])
        assert answers == [answer(1), answer(1, REFUSED)[:5]]


# --- Messages of herald ---------------------------------------------------------------------------


def test_50_a_herald_message_is_shown_and_delivered(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED)) as hooking,
        herald_bytes.subscriber(broker) as listener,
        HeraldPeer(broker) as peer,
    ):
        peer.join(herald_bytes.handshake_pub(7, b"probe"))
        peer.send(herald_bytes.publish(7, b"one") + herald_bytes.publish(7, b""))
        call = hooking.called(b"h", b"push")
        assert call.about == (b"h", b"push", b"probe", b"herald")
        assert call[2:3] + call[4:] == (b"channel/7", BUFFER, b"one")
        assert len(call.headers) == 4
        assert abs(call.created_at - time.time()) < 60
        hooking.answer(call)
        assert listener.message()[::2] == (7, b"one")
        call = hooking.called(b"h", b"push")
        assert call[4:] == (EMPTY, b"")
        hooking.answer(call)
        assert listener.message()[::2] == (7, b"")


def test_51_a_refused_herald_message_is_unauthorized_and_the_next_goes_on(
    broker: LiveBroker,
) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"channel/7"))
    with (
        middleware(broker, hook) as hooking,
        herald_bytes.subscriber(broker, b"\x07\x08") as listener,
        herald_bytes.publisher(broker) as peer,
    ):
        stream = [(8, b"a"), (7, b"b"), (8, b"c"), (7, b"d"), (8, b"e")]
        peer.send(b"".join(herald_bytes.publish(*each) for each in stream))
        hooking.answer(hooking.called(b"h", b"push"), REFUSED, b"no")
        hooking.answer(hooking.called(b"h", b"push"))
        peer.expect(herald_bytes.error(UNAUTHORIZED))
        peer.settle()
        assert [listener.message()[2] for _ in range(4)] == [b"a", b"c", b"d", b"e"]


def test_52_a_herald_message_without_an_answer_is_unauthorized(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, timeout_ms=SHORT_MS)
    with middleware(broker, hook), herald_bytes.publisher(broker) as peer:
        peer.send(herald_bytes.publish(7, b"x"))
        peer.expect(herald_bytes.error(UNAUTHORIZED))


# --- Messages of the others -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_55_a_rheos_message_is_shown_and_succeeds_or_fails_in_its_order(
    broker: LiveBroker, version: int
) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"t"))
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"#") as listener,
        rheos_bytes.Client(broker, rheos_bytes.Rheos(version)) as peer,
    ):
        peer.must(rheos_bytes.CREATE, b"t")
        peer.must(rheos_bytes.CREATE, b"u")
        for name, payload in ((b"u", b"1"), (b"t", b"2"), (b"u", b"3"), (b"t", b"4"), (b"u", b"5")):
            peer.request(rheos_bytes.PUBLISH, name, payload)
        call = hooking.called(b"h", b"push")
        identity = str(uuid.UUID(bytes=rheos_bytes.ALICE)).encode()
        assert call.about == (b"h", b"push", identity, b"rheos%d" % version)
        assert call[2:3] + call[4:] == (b"t", BUFFER, b"2")
        hooking.answer(call, REFUSED, b"no")
        hooking.answer(hooking.called(b"h", b"push"))
        success, failed = rheos_bytes.SUCCESS, rheos_bytes.FAILED
        assert [peer.ack().code for _ in range(5)] == [success, failed, success, success, success]
        assert [listener.forwarded().payload for _ in range(4)] == [b"1", b"3", b"4", b"5"]
        assert judged(broker) == 2


def test_56_a_fleximq_message_is_shown_and_delivered(broker: LiveBroker) -> None:
    fx = fleximq_bytes
    hook = register(0, b"h", PUSHED, topic_is(b"t"))
    with (
        middleware(broker, hook) as hooking,
        subscriber(broker, b"#") as listener,
        Peer(broker.address) as peer,
    ):
        peer.send(fx.frame(0, 0))
        base = peer.receive(26)
        peer.receive(fx.header_length(base) + 8)
        (number,) = struct.unpack_from(">I", base, 2)
        stream = [("u", b"1"), ("t", b"2"), ("u", b"3")]
        for name, payload in stream:
            peer.send(fx.frame(5, number, fx.topic(name), fx.pack(payload)))
        call = hooking.called(b"h", b"push")
        assert call.about == (b"h", b"push", b"%d" % number, b"fleximq")
        assert call[2:3] + call[4:] == (b"t", BUFFER, b"2")
        hooking.answer(call)
        assert [listener.forwarded().payload for _ in range(3)] == [b"1", b"2", b"3"]


# --- Connecting and leaving -----------------------------------------------------------------------


def test_60_a_client_is_let_in_when_the_middleware_says_so(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", CONNECT)) as hooking, LamaPeer(broker) as peer:
        peer.send(authentication(b"meter-3"))
        peer.expect(OFFER)
        peer.send(CHOICE + push(1, b"t"))
        call = hooking.called(b"h", b"connect")
        assert call.about == (b"h", b"connect", b"meter-3", b"lamamq")
        assert call[2:3] + call[4:] == (b"meter-3", EMPTY, b"")
        peer.expect_nothing(0.05)
        hooking.answer(call)
        peer.expect_answer(1)


def test_61_a_client_that_is_refused_gets_error_4_for_id_0_and_the_end(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", CONNECT)) as hooking, LamaPeer(broker) as peer:
        peer.join().send(push(1, b"t"))
        hooking.answer(hooking.called(b"h", b"connect"), REFUSED, b"not you")
        assert peer.expect_answer(0, REFUSED) == b"not you"
        peer.expect_close()
        assert broker.call(lambda: len(broker.server.broker.sessions)) == 1


def test_62_without_an_answer_a_client_is_refused_or_let_in_as_the_strategy_says(
    broker: LiveBroker,
) -> None:
    with client(broker) as hooking:
        hooking.request(register(0, b"h", CONNECT, timeout_ms=SHORT_MS))
        with LamaPeer(broker) as peer:
            peer.join()
            peer.expect_answer(0, TIMEOUT)
            peer.expect_close()
        hooking.called(b"h", b"connect")
        hooking.request(unregister(0, b"h"))
        hooking.request(register(0, b"h", CONNECT, strategy=WAIT_OR_GO_ON, timeout_ms=SHORT_MS))
        with client(broker) as peer:
            peer.settle()


def test_63_a_herald_client_that_is_refused_is_unauthorized_and_one_that_passes_gets_its_channels(
    broker: LiveBroker,
) -> None:
    with middleware(broker, register(0, b"h", CONNECT)) as hooking:
        with HeraldPeer(broker) as peer:
            peer.send(herald_bytes.handshake_sub(b"\x07", b"bad"))
            call = hooking.called(b"h", b"connect")
            assert call.about == (b"h", b"connect", b"bad", b"herald")
            hooking.answer(call, REFUSED, b"no")
            peer.expect(herald_bytes.frame(0x03, bytes([UNAUTHORIZED]) + bytes(8)))
            peer.expect_close()
        with HeraldPeer(broker) as peer:
            peer.send(herald_bytes.handshake_sub(b"\x07", b"good"))
            hooking.answer(hooking.called(b"h", b"connect"))
            assert peer.receive(16)[:8] == herald_bytes.frame(0x03, bytes(9))[:8]
            hooking.request(push(0, b"channel/7", b"x"))
            assert peer.message()[::2] == (7, b"x")


@pytest.mark.parametrize("strategy", [TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON])
def test_64_leaving_is_told_whatever_the_strategy(broker: LiveBroker, strategy: int) -> None:
    hook = register(0, b"h", DISCONNECT, strategy=strategy)
    with middleware(broker, hook) as hooking:
        with client(broker, b"meter-3") as peer:
            peer.settle()
        call = hooking.called(b"h", b"disconnect")
        assert call.about == (b"h", b"disconnect", b"meter-3", b"lamamq")
        assert call.topic == b"meter-3"
        hooking.answer(call, REFUSED, b"stay")
        with herald_bytes.publisher(broker) as peer:
            peer.settle()
        assert hooking.called(b"h", b"disconnect").about[3] == b"herald"


# --- Subscriptions and registrations --------------------------------------------------------------


def test_70_a_subscription_counts_from_when_the_middleware_let_it_pass(broker: LiveBroker) -> None:
    hook = register(0, b"h", SUBSCRIBED)
    with middleware(broker, hook) as hooking, client(broker, b"meter-3") as peer:
        peer.send(subscribe(1, b"t/+"))
        call = hooking.called(b"h", b"subscribe")
        assert call.about == (b"h", b"subscribe", b"meter-3", b"lamamq")
        assert call.topic == b"t/+"
        hooking.request(push(0, b"t/1", b"early"))
        hooking.answer(call)
        peer.expect_answer(1)
        hooking.request(push(0, b"t/1", b"x"))
        assert peer.forwarded().payload == b"x"
        peer.request(subscribe(0, b"t/+"))  # it has that already: nobody is asked
        hooking.settle()


def test_71_a_refused_subscription_is_error_4_and_brings_nothing(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", SUBSCRIBED)) as hooking, client(broker) as peer:
        peer.send(subscribe(1, b"t"))
        hooking.answer(hooking.called(b"h", b"subscribe"), REFUSED, b"no")
        assert peer.expect_answer(1, REFUSED) == b"no"
        hooking.request(push(0, b"t"))
        peer.send(unsubscribe(2, b"t"))
        peer.expect_answer(2, BAD_REQUEST)


def test_72_a_subscription_that_cannot_be_is_shown_to_nobody(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", SUBSCRIBED)) as hooking, client(broker) as peer:
        peer.request(subscribe(0, b"a/#/b"), error=BAD_REQUEST)
        hooking.settle()


def test_73_each_channel_of_a_herald_handshake_is_judged(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", SUBSCRIBED)) as hooking, HeraldPeer(broker) as peer:
        peer.send(herald_bytes.handshake_sub(b"\x01\x02\x03") + herald_bytes.subscribe(4))
        for channel in (1, 2, 3, 4):
            call = hooking.called(b"h", b"subscribe")
            assert call.topic == b"channel/%d" % channel
            hooking.answer(call, REFUSED if channel == 2 else 0, b"no")
        assert peer.receive(16)[:8] == herald_bytes.frame(0x03, bytes(9))[:8]
        peer.expect(herald_bytes.error(UNAUTHORIZED))
        peer.settle()
        for channel in (1, 2, 3, 4):
            hooking.request(push(0, b"channel/%d" % channel, b"x"))
        assert [peer.message()[0] for _ in range(3)] == [1, 3, 4]


def test_74_a_herald_handshake_with_every_channel_is_taken_with_and_without_hooks(
    broker: LiveBroker,
) -> None:
    channels = bytes(range(255))
    with herald_bytes.subscriber(broker, channels) as peer:
        peer.settle()
    with middleware(broker, register(0, b"h", SUBSCRIBED, strategy=TELL)) as hooking:
        with herald_bytes.subscriber(broker, channels) as peer:
            peer.settle()
        found = [hooking.called(b"h", b"subscribe").topic for _ in channels]
        assert found == [b"channel/%d" % channel for channel in channels]


def test_75_unsubscribing_is_told(broker: LiveBroker) -> None:
    hook = register(0, b"h", UNSUBSCRIBED)
    with middleware(broker, hook) as hooking, subscriber(broker, b"t/+") as peer:
        peer.request(unsubscribe(0, b"t/+"))
        call = hooking.called(b"h", b"unsubscribe")
        assert call.about == (b"h", b"unsubscribe", b"subscriber", b"lamamq")
        assert call.topic == b"t/+"
        peer.request(unsubscribe(0, b"t/+"), error=BAD_REQUEST)
        hooking.settle()
        with herald_bytes.subscriber(broker) as herald:
            herald.send(herald_bytes.unsubscribe(7))
            assert hooking.called(b"h", b"unsubscribe").topic == b"channel/7"


def test_76_a_registration_may_be_refused_and_an_unregistration_is_told(broker: LiveBroker) -> None:
    hooks = [register(0, b"in", REGISTERED), register(0, b"out", UNREGISTERED)]
    with middleware(broker, *hooks) as hooking, client(broker, b"new") as peer:
        peer.send(register(1, b"spy", PUSHED) + register(2, b"good", PUSHED, strategy=TELL))
        call = hooking.called(b"in", b"register")
        assert call.about == (b"in", b"register", b"new", b"lamamq")
        assert call.topic == b"spy"
        hooking.answer(call, REFUSED, b"no spies")
        assert peer.expect_answer(1, REFUSED) == b"no spies"
        hooking.answer(hooking.called(b"in", b"register"))
        peer.expect_answer(2)
        peer.request(unregister(0, b"spy"), error=BAD_REQUEST)
        peer.request(unregister(0, b"good"))
        assert hooking.called(b"out", b"unregister").topic == b"good"


# --- Middleware that vanishes ---------------------------------------------------------------------


@pytest.mark.parametrize("abruptly", [True, False], ids=["gone", "unregistered"])
@pytest.mark.parametrize(("strategy", "error"), [(WAIT_OR_REFUSE, TIMEOUT), (WAIT_OR_GO_ON, 0)])
def test_80_a_hook_that_goes_gives_no_answer(
    broker: LiveBroker, strategy: int, error: int, *, abruptly: bool
) -> None:
    hook = register(0, b"h", PUSHED, strategy=strategy, timeout_ms=60_000)
    with middleware(broker, hook) as hooking, client(broker) as one, client(broker) as two:
        one.send(push(1, b"t", b"x") + push(2, b"t"))
        two.send(push(1, b"t", b"y") + push(2, b"t"))
        calls = [hooking.called(b"h", b"push") for _ in range(2)]
        if abruptly:
            hooking.socket.close()
        else:
            hooking.send(unregister(9, b"h"))
        for peer in (one, two):
            peer.expect_answer(1, error)
            peer.expect_answer(2)
        if not abruptly:
            hooking.expect_answer(9)
            hooking.answer(calls[0], REFUSED, b"late")
            hooking.settle()
        hooks_gone(broker)
        assert judged(broker) == 2


def test_81_the_hooks_behind_one_that_goes_are_still_asked(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"one", PUSHED, strategy=WAIT_OR_GO_ON)) as one,
        middleware(broker, register(0, b"two", PUSHED, priority=1)) as two,
        client(broker) as peer,
    ):
        peer.send(push(1, b"t"))
        one.called(b"one", b"push")
        one.socket.close()
        two.answer(two.called(b"two", b"push"), REFUSED, b"no")
        assert peer.expect_answer(1, REFUSED) == b"no"


def test_82_a_client_that_leaves_while_it_waits_harms_nobody(broker: LiveBroker) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED), register(0, b"c", CONNECT)) as hooking,
        LamaPeer(broker) as newcomer,
    ):
        newcomer.join()
        call = hooking.called(b"c", b"connect")
        newcomer.socket.close()
        hooking.answer(call)
        hooking.settle()
        wait_until(lambda: broker.call(lambda: len(broker.server.broker.sessions)) == 1)


def test_83_a_message_whose_sender_left_while_it_was_judged_still_counts(
    broker: LiveBroker,
) -> None:
    with (
        middleware(broker, register(0, b"h", PUSHED)) as hooking,
        subscriber(broker, b"channel/7") as listener,
    ):
        with herald_bytes.publisher(broker) as peer:
            peer.send(herald_bytes.publish(7, b"a") + herald_bytes.publish(7, b"b"))
        hooking.answer(hooking.called(b"h", b"push"))
        hooking.answer(hooking.called(b"h", b"push"))
        assert [listener.forwarded().payload for _ in range(2)] == [b"a", b"b"]
