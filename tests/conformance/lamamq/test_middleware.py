"""Hooks on other protocols, and the hooks, sessions and counters of the broker."""

import struct
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support import fleximq_bytes, herald_bytes, rheos_bytes
from tests.support.herald_bytes import HeraldPeer
from tests.support.lamamq_bytes import (
    BAD_REQUEST,
    BIG,
    BUFFER,
    CONNECT,
    DISCONNECT,
    EMPTY,
    PUSHED,
    REFUSED,
    SUBSCRIBED,
    TELL,
    TIMEOUT,
    UNSUBSCRIBED,
    WAIT_OR_GO_ON,
    WAIT_OR_REFUSE,
    LamaPeer,
    answer,
    client,
    has_header,
    push,
    register,
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


def test_without_hooks_no_message_leaves_the_batch_path(broker: LiveBroker) -> None:
    with client(broker) as peer:
        peer.send(b"".join(push(n, b"t/%d" % (n % 9)) for n in range(500)))
        peer.expect(b"".join(answer(n) for n in range(500)))
        assert judged(broker) == 0


def test_with_a_hook_on_one_topic_only_that_one_leaves_it(broker: LiveBroker) -> None:
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


def test_a_hook_on_headers_leaves_protocols_without_headers_alone(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, has_header(b"k"))
    with middleware(broker, hook), herald_bytes.publisher(broker) as peer:
        peer.send(b"".join(herald_bytes.publish(7, b"%d" % n) for n in range(100)))
        peer.settle()
        assert judged(broker) == 0


def test_a_herald_message_is_shown_and_delivered(broker: LiveBroker) -> None:
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


def test_a_refused_herald_message_is_unauthorized_and_the_next_goes_on(
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


def test_a_herald_message_without_an_answer_is_unauthorized(broker: LiveBroker) -> None:
    hook = register(0, b"h", PUSHED, timeout_ms=SHORT_MS)
    with middleware(broker, hook), herald_bytes.publisher(broker) as peer:
        peer.send(herald_bytes.publish(7, b"x"))
        peer.expect(herald_bytes.error(UNAUTHORIZED))


@pytest.mark.parametrize("version", [1, 2])
def test_a_rheos_message_is_shown_and_succeeds_or_fails_in_its_order(
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


def test_a_fleximq_message_is_shown_and_delivered(broker: LiveBroker) -> None:
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


def test_a_client_that_is_refused_gets_error_4_for_id_0_and_the_end(broker: LiveBroker) -> None:
    with middleware(broker, register(0, b"h", CONNECT)) as hooking, LamaPeer(broker) as peer:
        peer.join().send(push(1, b"t"))
        hooking.answer(hooking.called(b"h", b"connect"), REFUSED, b"not you")
        assert peer.expect_answer(0, REFUSED) == b"not you"
        peer.expect_close()
        assert broker.call(lambda: len(broker.server.broker.sessions)) == 1


def test_a_herald_client_that_is_refused_is_unauthorized_and_one_that_passes_gets_its_channels(
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
def test_leaving_is_told_whatever_the_strategy(broker: LiveBroker, strategy: int) -> None:
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


def test_each_channel_of_a_herald_handshake_is_judged(broker: LiveBroker) -> None:
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


def test_a_herald_handshake_with_every_channel_is_taken_with_and_without_hooks(
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


def test_unsubscribing_is_told(broker: LiveBroker) -> None:
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


@pytest.mark.parametrize("abruptly", [True, False], ids=["gone", "unregistered"])
@pytest.mark.parametrize(("strategy", "error"), [(WAIT_OR_REFUSE, TIMEOUT), (WAIT_OR_GO_ON, 0)])
def test_a_hook_that_goes_gives_no_answer(
    broker: LiveBroker, strategy: int, error: int, *, abruptly: bool
) -> None:
    broker.server.broker.hooks.grace_seconds = 0  # it ends with its connection
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


def test_a_client_that_leaves_while_it_waits_harms_nobody(broker: LiveBroker) -> None:
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


def test_a_message_whose_sender_left_while_it_was_judged_still_counts(
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
