"""Clients that do harm: nobody else is hurt by it, and nothing of it stays.

Tests whose docstring says "Once broken" are of bugs that these attacks found.
"""

import contextlib
import itertools
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.broker import Broker, BrokerSettings
from penstock.gateway import herald as herald_gateway
from penstock.gateway.options import GatewayOptions
from penstock.protocols.herald import HERALD
from penstock.transport import stream
from tests.conformance.fleximq.client import Client as FleximqPeer
from tests.fuzz.sockets import assert_nothing_is_left, attack, failures_logged, until
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as hb
from tests.support import lamamq_bytes as lm
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import CREATE, PUBLISH, SUBSCRIBE, Rheos
from tests.support.rheos_bytes import Client as RheosPeer
from tests.unit.core.test_broker import join, new_broker, send

KIB, MIB = 1 << 10, 1 << 20

MIDDLEWARE_TIMEOUT = 3


@contextlib.contextmanager
def attacked(**keywords: Any) -> Iterator[LiveBroker]:
    """A broker in which nothing fails, and nothing is left at the end."""
    with failures_logged() as failures, LiveBroker(**keywords) as broker:
        broker.server.broker.hooks.grace_seconds = 0  # hooks end with their connection
        yield broker
        assert_nothing_is_left(broker)
        assert not failures, failures[0]
        assert not inside(broker).counters.connections_failed["internal error"]


def inside(broker: LiveBroker) -> Broker:
    return broker.server.broker


def holds(broker: LiveBroker, condition: Callable[[Broker], Any], complaint: str) -> None:
    """Wait until a condition on the broker holds."""
    until(lambda: broker.call(lambda: condition(inside(broker))), lambda: complaint)


def close_at_once(peer: Peer) -> None:
    """Leave by a reset: the broker learns of it in the middle of whatever it does."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


def flood(peer: Peer, frames: bytes) -> threading.Thread:
    """Send `frames` from a thread of its own, until they or `peer` are gone."""
    peer.socket.settimeout(10)

    def run() -> None:
        with contextlib.suppress(OSError):
            peer.socket.sendall(frames)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# --- Streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hooks", [False, True])
def test_garbage_of_every_protocol_hurts_nobody_and_leaves_nothing(*, hooks: bool) -> None:
    report = attack(seconds=10, seed=7, hooks=hooks, connections_max=300)
    assert report.connections == 300


def test_bytes_that_trickle_into_a_large_frame_cost_what_they_weigh() -> None:
    """Once broken: each read copied all that was there of the frame, twice."""
    buffer: Any = stream.ReceiveBuffer()
    buffer.large_reads = SimpleNamespace(wait=lambda _: None)  # there is no event loop
    owner = SimpleNamespace(
        buffer=buffer,
        congested_bytes=1,
        opened=lambda _: SimpleNamespace(received=lambda _: 0),
    )
    connection = stream.StreamConnection(owner)
    transport: Any = SimpleNamespace(
        get_extra_info=lambda _: None, set_write_buffer_limits=lambda **_: None
    )
    connection.connection_made(transport)
    for _ in range(40):
        size = len(connection.get_buffer(-1))
        connection.buffer_updated(min(size, 100 * KIB))
    whole = connection.waiting()
    assert len(whole) == 4000 * KIB
    places = set()
    for _ in range(100):
        places.add(id(connection.get_buffer(-1).obj))
        connection.buffer_updated(1)
    assert len(places) == 1
    assert connection.waiting() == whole + bytes(100)


def test_announced_lengths_take_no_memory_before_their_bytes_are_there() -> None:
    with attacked() as broker, contextlib.ExitStack() as stack:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20):
            peers = [stack.enter_context(Peer(broker.address)) for _ in range(4)]
            peers[0].send(hb.handshake_pub() + struct.pack("<HBI", 0xCAFE, 0x10, 1 << 20) + b"x")
            peers[1].send(lm.authentication(b"n", b"k") + lm.CHOICE)
            peers[1].send(lm.push(1, b"a", bytes(1))[:-5] + struct.pack(">I", 1 << 24) + b"x")
            peers[2].send(struct.pack("<BI16sBHI", 0xFA, 1 << 24, bytes(16), 3, 1, (1 << 24) - 7))
            client = stack.enter_context(FleximqPeer(broker.address))
            client.send(fx.frame(fx.PUB, client.number, fx.topic("a"))[:-8])
            client.send(struct.pack(">Q", 15 << 20) + b"x")
        with hb.publisher(broker) as witness:
            witness.settle()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert after - before < 64 * KIB  # of KiB


@pytest.mark.parametrize("version", [1, 2])
def test_names_that_are_too_long_once_escaped_are_refused(version: int) -> None:
    with attacked() as broker, RheosPeer(broker, Rheos(version)) as peer:
        for name in (b"\xff" * 65_535, b"\xff" + b"a" * 65_533):
            for opcode in (CREATE, SUBSCRIBE, PUBLISH):
                peer.request(opcode, name, b"v")
                assert peer.ack().code != 0
        peer.must(CREATE, b"a")


# --- Handshakes -----------------------------------------------------------------------------------


def test_connections_that_never_finish_a_handshake_are_closed() -> None:
    options = GatewayOptions(handshake_seconds_max=0.5)
    beginnings = [
        b"",
        b"\xfe",
        hb.handshake_pub()[:9],
        lm.authentication(b"name")[:6],
        lm.authentication(b"name", b"k"),
        fx.frame(fx.JOIN, 0)[:20],
        Rheos(2).request(CREATE, b"topic")[:30],
    ]
    with attacked(options=options) as broker, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker.address)) for _ in range(20) for _ in beginnings]
        for peer, beginning in zip(peers, itertools.cycle(beginnings), strict=False):
            peer.send(beginning)
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                while peer.socket.recv(4096):
                    pass
        holds(broker, lambda b: not len(b.sessions), "somebody got in")
        assert_nothing_is_left(broker)


# --- Clients that do not read ---------------------------------------------------------------------


def test_a_subscriber_that_keeps_up_after_each_hold_is_not_called_slow() -> None:
    """Once broken: the time of the first hold ran on, and ended a later one that had just begun."""
    broker = new_broker(hold_seconds_max=1.0)
    publisher, subscriber = join(broker), join(broker, "channel/1")
    clock: Any = broker.clock
    link: Any = subscriber.link
    for _ in range(5):
        link.congested = True
        send(broker, publisher, (1, b"x"))
        assert publisher.link.paused
        clock.seconds += 0.3
        broker.timers.run_due()
        assert publisher.link.paused
        assert not subscriber.slow
        link.congested = False
        broker.drained(subscriber)
        assert not publisher.link.paused
    link.congested = True
    send(broker, publisher, (1, b"x"))
    clock.seconds += 1.0
    broker.timers.run_due()
    assert subscriber.slow
    assert not publisher.link.paused


def test_a_slow_subscriber_that_reads_on_loses_nothing() -> None:
    """Once broken: see above. It reads a tenth of what the publisher could send."""
    settings = BrokerSettings(out_buffer_bytes_max=1 * MIB, hold_seconds_max=0.4)
    value = bytes(10_000)
    with attacked(settings=settings) as broker, hb.subscriber(broker) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        with hb.publisher(broker) as fast:
            total = 2500

            def publish() -> None:
                for number in range(total):
                    fast.send(hb.publish(7, struct.pack(">I", number) + value))

            thread = threading.Thread(target=publish)
            thread.start()
            numbers = []
            for number in range(total):
                numbers.append(struct.unpack_from(">I", slow.message()[2])[0])
                if number % 20 == 0:
                    time.sleep(0.01)  # this is how slow it is
            thread.join(10)
            assert numbers == list(range(total))
        assert not inside(broker).counters.messages_dropped


@pytest.mark.parametrize("disconnect", [False, True])
def test_subscribers_that_never_read_are_bounded_and_others_lose_nothing(
    *, disconnect: bool
) -> None:
    settings = BrokerSettings(
        out_buffer_bytes_max=1 * MIB, hold_seconds_max=0.1, disconnect_slow_consumers=disconnect
    )
    frames = hb.publish(7, bytes(20_000)) * 50
    with attacked(settings=settings) as broker, contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(hb.subscriber(broker)) for _ in range(3)]
        deaf_lama = stack.enter_context(lm.subscriber(broker, b"channel/#"))
        witness = stack.enter_context(hb.subscriber(broker))
        publisher = stack.enter_context(hb.publisher(broker))
        for number in range(40):
            publisher.send(frames + hb.publish(7, b"%d" % number))
            for _ in range(50):
                assert len(witness.message()[2]) == 20_000
            assert witness.message()[2] == b"%d" % number
        largest = broker.call(lambda: max(each.link.buffered for each in inside(broker).sessions))
        assert largest <= 1 * MIB + 2 * len(frames)
        assert inside(broker).counters.messages_dropped[HERALD]
        if disconnect:
            holds(broker, lambda b: len(b.sessions) == 2, "the deaf are still there")
        close_at_once(deaf_lama)
        for peer in deaf:
            close_at_once(peer)


def test_a_publisher_held_for_a_subscriber_that_leaves_goes_on() -> None:
    settings = BrokerSettings(out_buffer_bytes_max=1 * MIB, hold_seconds_max=60)
    with attacked(settings=settings) as broker:
        deaf = hb.subscriber(broker)
        with hb.publisher(broker) as one, hb.publisher(broker) as other:
            flooding = flood(one, hb.publish(7, bytes(20_000)) * 1000)
            holds(broker, lambda b: any(s.held_publishers for s in b.sessions), "nobody is held")
            other.send(hb.publish(7, bytes(20_000)))
            close_at_once(deaf)
            flooding.join(10)
            one.settle()
            other.settle()


def test_a_publisher_that_leaves_while_it_is_held_is_forgotten() -> None:
    settings = BrokerSettings(out_buffer_bytes_max=1 * MIB, hold_seconds_max=0.3)
    with attacked(settings=settings) as broker, hb.subscriber(broker) as deaf:
        one = hb.publisher(broker)
        flooding = flood(one, hb.publish(7, bytes(20_000)) * 1000)
        holds(broker, lambda b: any(s.held_publishers for s in b.sessions), "nobody is held")
        one.socket.shutdown(socket.SHUT_RDWR)
        flooding.join(10)
        close_at_once(one)
        holds(broker, lambda b: len(b.sessions) == 1, "the publisher is still there")
        holds(broker, lambda b: not any(s.held_publishers for s in b.sessions), "it is still held")
        close_at_once(deaf)


def test_answers_that_are_not_read_stop_the_requests_and_all_come_in_the_end() -> None:
    settings = BrokerSettings(out_buffer_bytes_max=256 * KIB)
    with attacked(settings=settings) as broker, RheosPeer(broker, Rheos(1)) as peer:
        peer.must(CREATE, b"a")
        sent = []

        def publish() -> None:
            run = Rheos(1).request(PUBLISH, b"a", b"v", client=peer.identity) * 1000
            for _ in range(400):
                peer.socket.sendall(run)
                sent.append(1000)

        peer.socket.settimeout(20)
        thread = threading.Thread(target=publish)
        thread.start()
        holds(
            broker,
            lambda b: all(s.link.congested for s in b.sessions),
            "the answers do not pile up",
        )
        largest = broker.call(lambda: max(each.link.buffered for each in inside(broker).sessions))
        assert largest < 1 * MIB
        received = 0
        while received < 400_000 * 18:
            received += len(peer.socket.recv(1 << 20))
        thread.join(10)
        assert sum(sent) == 400_000
        peer.must(PUBLISH, b"a")


def test_questions_whose_answers_are_not_read_do_not_keep_the_broker_busy() -> None:
    """Once broken: all questions of a read were answered, and the answers thrown away."""
    with attacked() as broker, FleximqPeer(broker.address) as greedy:
        names = [f"a/rather/long/name/of/a/topic/{number:060}" for number in range(10_000)]
        broker.call(lambda: [inside(broker).topics.intern(name) for name in names])
        fields = fx.routing((1, "/topics"))
        frames = b"".join(
            fx.frame(fx.REQ, greedy.number, fields | fx.request(f"{number}"))
            for number in range(2_000)
        )
        greedy.send(frames)
        with hb.publisher(broker) as witness:
            started = time.monotonic()
            witness.settle()
            assert time.monotonic() - started < 3
        for number in range(40):  # and yet none is lost
            assert greedy.frame().header["reqrep"]["id"] == f"{number}"
        close_at_once(greedy)


@pytest.mark.parametrize("goodbye", ["garbage", "end", "disconnect"])
def test_a_client_that_leaves_without_reading_does_not_stay(
    goodbye: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once broken: what it did not read kept its connection and its session for ever."""
    monkeypatch.setattr(stream, "LINGER_SECONDS_MAX", 0.2)
    monkeypatch.setattr(herald_gateway, "LINGER_SECONDS_MAX", 0.2)
    settings = BrokerSettings(out_buffer_bytes_max=8 * MIB, hold_seconds_max=0.1)
    with (
        attacked(settings=settings) as broker,
        hb.subscriber(broker) as deaf,
        hb.publisher(broker) as publisher,
    ):
        for _ in range(12):
            publisher.send(hb.publish(7, bytes(1_000_000)))
        publisher.settle()
        if goodbye == "garbage":
            deaf.send(bytes(100))
        elif goodbye == "disconnect":
            deaf.send(hb.DISCONNECT)
        else:
            deaf.socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + 5
        while broker.call(lambda: len(inside(broker).sessions)) > 1:
            publisher.send(hb.publish(7, bytes(1000)))
            publisher.settle()
            assert time.monotonic() < deadline, "the client is still there"


# --- Many of everything ---------------------------------------------------------------------------


def test_thousands_of_subscriptions_and_topics_of_one_client_leave_with_it() -> None:
    with attacked() as broker:
        with lm.client(broker) as peer:
            count = 3000
            peer.send(b"".join(lm.subscribe(n, b"many/%d/+" % n) for n in range(count)))
            assert peer.receive(5 * count) == b"".join(lm.header(n, 0) for n in range(count))
            for start in range(0, count, 500):
                ids = range(start, start + 500)
                peer.send(b"".join(lm.push(n, b"many/%d/x" % n) for n in ids))
                answers = 0
                for _ in range(2 * len(ids)):
                    (identifier,) = struct.unpack(">I", peer.receive(4))
                    if identifier & lm.BROKER_BIT:
                        _skip_forward(peer)
                    else:
                        assert peer.receive(1) == b"\0"
                        answers += 1
                assert answers == len(ids)
        assert_nothing_is_left(broker)


def _skip_forward(peer: Peer) -> None:
    peer.receive(5)
    (size,) = struct.unpack(">I", peer.receive(4))
    peer.receive(size)
    assert peer.receive(3) == b"\0\0\x02"
    (size,) = struct.unpack(">I", peer.receive(4))
    peer.receive(size)


def test_subscriptions_that_come_and_go_disturb_no_order() -> None:
    """Storms on the same and on other patterns, half of them by clients that vanish."""
    stop = threading.Event()
    problems: list[BaseException] = []

    with attacked() as broker:

        def storm(number: int) -> None:
            try:
                while not stop.is_set():
                    peer = lm.client(broker, b"storm%d" % number)
                    patterns = [b"channel/7", b"channel/+", b"#", b"channel/%d" % number]
                    for pattern in patterns * 3:
                        peer.send(lm.subscribe(1, pattern))
                        peer.send(lm.unsubscribe(2, pattern))
                    peer.send(lm.subscribe(3, b"#"))
                    close_at_once(peer)
            except OSError as error:
                problems.append(error)

        threads = [threading.Thread(target=storm, args=(number,)) for number in range(3)]
        with hb.subscriber(broker) as witness, hb.publisher(broker) as publisher:
            for thread in threads:
                thread.start()
            for start in range(0, 4000, 100):
                publisher.send(
                    b"".join(hb.publish(7, struct.pack(">I", n)) for n in range(start, start + 100))
                )
                for number in range(start, start + 100):
                    assert witness.message()[2] == struct.pack(">I", number)
            stop.set()
            for thread in threads:
                thread.join(10)
        assert not problems


def test_a_pattern_of_thousands_of_levels_does_not_stop_the_broker() -> None:
    """Once broken: compiling one took most of a second and 2.4 MB, and a client may have 10,000."""
    with attacked() as broker, lm.client(broker) as peer, hb.publisher(broker) as witness:
        pattern = b"/".join([b"+"] * 32_000)
        peer.send(b"".join(lm.subscribe(n, b"%d/" % n + pattern) for n in range(3)))
        time.sleep(0.05)
        started = time.monotonic()
        witness.settle()
        assert time.monotonic() - started < 0.5


# --- Middleware -----------------------------------------------------------------------------------


def test_whoever_vanishes_in_the_middle_of_a_hook_leaves_nothing() -> None:
    # Who is not read is seen to leave only when it is time to look again.
    with attacked(options=GatewayOptions(handshake_seconds_max=0.5)) as broker:
        for strategy in (lm.WAIT_OR_REFUSE, lm.WAIT_OR_GO_ON):
            middleware = lm.client(broker, b"m")
            kinds = (lm.CONNECT, lm.PUSHED, lm.SUBSCRIBED, lm.DISCONNECT, lm.UNSUBSCRIBED)
            for kind in kinds:
                hook = lm.register(0, b"hook%d" % kind, kind, strategy=strategy, timeout_ms=60_000)
                middleware.request(hook)
            connecting = Peer(broker.address)
            connecting.send(hb.handshake_pub(client_id=b"connecting"))
            middleware.called(b"hook0", b"connect")
            fleximq = Peer(broker.address)
            fleximq.send(fx.frame(fx.JOIN, 0))
            middleware.called(b"hook0", b"connect")
            publisher = hb.HeraldPeer(broker)
            publisher.send(hb.handshake_pub() + hb.publish(7, b"x") + hb.publish(7, b"y"))
            middleware.answer(middleware.called(b"hook0", b"connect"))
            middleware.called(b"hook16", b"push")
            close_at_once(connecting)
            close_at_once(fleximq)
            holds(
                broker,
                lambda b: len(b.hooks.calls._hooks) == 1,
                "calls for those who left are waited for",
            )
            close_at_once(middleware)
            holds(broker, lambda b: not len(b.hooks), "the hooks stayed")
            publisher.receive(16)
            if strategy == lm.WAIT_OR_REFUSE:
                publisher.expect(hb.error(8))  # the one that was asked about; the next passes
            publisher.settle()
            close_at_once(publisher)
            assert_nothing_is_left(broker)


def test_a_herald_client_that_comes_back_waits_for_one_verdict_at_a_time() -> None:
    """Once broken: it was asked about all it had at once, and let go on after the first verdict."""
    with attacked() as broker:
        with hb.HeraldPeer(broker) as peer:
            peer.join(hb.handshake_sub(b"\x01\x02\x03", b"again"))
            holds(broker, _has_subscriptions(3), "it cannot subscribe")
            close_at_once(peer)
        holds(broker, lambda b: len(b.resumption) == 1, "it is not remembered")
        with lm.client(broker, b"m") as middleware, hb.HeraldPeer(broker) as peer:
            middleware.request(lm.register(0, b"h", lm.SUBSCRIBED))
            peer.join(hb.handshake_sub(b"\x04\x01\x02\x05\x03", b"again"))
            peer.send(hb.PING)
            for number in (4, 1, 2, 5, 3):
                call = middleware.called(b"h", b"subscribe")
                assert call.topic == b"channel/%d" % number
                assert broker.call(lambda: len(inside(broker).hooks.calls._hooks)) == 1
                peer.expect_nothing(0.05)
                middleware.answer(call)
            peer.expect(hb.PONG)
            holds(broker, _has_subscriptions(5), "subscriptions are missing")


def _has_subscriptions(count: int) -> Callable[[Broker], bool]:
    return lambda broker: sum(len(each.subscriptions) for each in broker.sessions) == count


def test_hooks_leave_no_timers_behind_for_each_message() -> None:
    """Once broken: each message that a hook judged left a timer of its sender's keep-alive."""
    with (
        attacked() as broker,
        lm.client(broker, b"m") as middleware,
        FleximqPeer(broker.address) as peer,
    ):
        middleware.request(lm.register(0, b"h", lm.PUSHED))
        before = broker.call(lambda: len(inside(broker).timers._heap))
        for _ in range(200):
            peer.say(fx.PUB, fx.topic("a"), payload=b"\xc0")
            middleware.answer(middleware.called(b"h", b"push"))
        peer.settle()
        after = broker.call(lambda: len(inside(broker).timers._heap))
        assert after - before < 20


def test_two_middlewares_that_judge_each_other_wait_no_longer_than_their_time_outs() -> None:
    """Each is suspended until the other answers, and its answers are not read meanwhile."""
    with (
        attacked() as broker,
        lm.client(broker, b"a") as a,
        lm.client(broker, b"b") as b,
        lm.client(broker, b"c") as bystander,
    ):
        a.request(lm.register(0, b"a", lm.PUSHED, lm.topic_is(b"of-b"), timeout_ms=500))
        b.request(lm.register(0, b"b", lm.PUSHED, lm.topic_is(b"of-a"), timeout_ms=500))
        a.send(lm.push(1, b"of-a"))
        call_to_b = b.called(b"b", b"push")
        b.send(lm.push(1, b"of-b"))
        call_to_a = a.called(b"a", b"push")
        a.answer(call_to_a)
        b.answer(call_to_b)
        bystander.request(lm.push(0, b"else"))
        a.expect_answer(1, MIDDLEWARE_TIMEOUT)
        # The first to give up is read again, and its answer may free the other in time.
        *_, error = b.receive(5)
        assert error in (0, MIDDLEWARE_TIMEOUT)
        if error:
            b._counted()
        a.request(lm.push(0, b"else"))
        b.request(lm.push(0, b"else"))


# --- Requests -------------------------------------------------------------------------------------


def test_requests_to_and_by_clients_that_vanish_leave_nothing() -> None:
    with attacked() as broker:
        with FleximqPeer(broker.address) as asker:
            target = FleximqPeer(broker.address)
            vanishing = FleximqPeer(broker.address)
            for number in range(100):
                to_target = fx.routing((target.number, "/x"))
                asker.say(fx.REQ, to_target, fx.request(f"{number}"))
                vanishing.say(fx.REQ, to_target, fx.request(f"{number}"))
                vanishing.say(fx.REQ, fx.routing((asker.number, "/x")), fx.request(f"to {number}"))
            holds(broker, lambda b: len(b.requests) == 300, "requests are missing")
            close_at_once(vanishing)
            holds(broker, lambda b: len(b.requests) == 100, "what it asked is waited for")
            close_at_once(target)
            ids = []
            while len(ids) < 100:
                found = asker.frame()
                if found.type == fx.REP:
                    ids.append(found.header["reqrep"]["id"])
            assert ids == [f"{number}" for number in range(100)]
        assert_nothing_is_left(broker)
