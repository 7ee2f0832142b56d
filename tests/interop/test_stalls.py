"""Attacks on the event loop's time: none may stall it.

The bound is on the processor time of the loop's thread in one delay, as the watchdog measures it:
load of other processes does not count. `PENSTOCK_STALLS=full` runs the sizes of `docs/security.md`.
"""

import contextlib
import gc
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.core.audiences import Encoding
from penstock.core.broker import BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.core.stalls import Stalls
from penstock.gateway.options import GatewayOptions
from penstock.limits import GROUP_UNACKED_DEFAULT
from penstock.protocols import PROTOCOLS
from penstock.server.run import COLLECTOR_THRESHOLDS
from tests.conformance.fleximq.client import Client as FleximqPeer
from tests.fuzz.sockets import assert_nothing_is_left
from tests.support import fleximq_bytes as fx
from tests.support import lamamq_bytes as lm
from tests.support.fakes import RecordingLink
from tests.support.http_live import HttpBroker
from tests.support.lamamq_bytes import BAD_REQUEST
from tests.support.live import LiveBroker

FULL = os.environ.get("PENSTOCK_STALLS") == "full"
CLIENT_SECONDS_MAX = 0.05
CROWD_SECONDS_MAX = 0.25
INTERVAL_SECONDS = 0.005
"""A delay includes the processor time since the mark before it: marks are more frequent here."""


def sized(small: int, full: int) -> int:
    return full if FULL else small


@contextlib.contextmanager
def bounded(seconds_max: float, *, http: bool = False, **keywords: Any) -> Iterator[LiveBroker]:
    """A broker whose loop is never delayed by more processor time than this."""
    gc.collect()
    gc.freeze()  # as `serve` does
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        with (HttpBroker if http else LiveBroker)(**keywords) as broker:
            broker.server._watchdog._interval = INTERVAL_SECONDS
            yield broker
            assert_nothing_is_left(broker)
            measured = stalls(broker)
            assert measured.processor_seconds_max < seconds_max, measured
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def stalls(broker: LiveBroker) -> Stalls:
    found: Stalls = broker.call(lambda: broker.server.broker.stalls)
    return found


def create_topics(broker: LiveBroker, names: Iterator[str]) -> None:
    """Intern topics in the broker's thread, a few in each turn, as clients would."""
    topics = broker.server.broker.topics
    while chunk := list(itertools.islice(names, 500)):
        broker.call(lambda chunk=chunk: [topics.intern(name) for name in chunk])


def subscribe_all(peer: lm.LamaPeer, patterns: list[bytes]) -> None:
    """Subscribe and wait for all answers, however many are sent at once."""
    peer.socket.settimeout(120)
    for start in range(0, len(patterns), 200):
        some = patterns[start : start + 200]
        peer.send(b"".join(lm.subscribe(number, each) for number, each in enumerate(some)))
        assert peer.receive(5 * len(some)) == b"".join(lm.header(n, 0) for n in range(len(some)))


# --- Patterns -------------------------------------------------------------------------------------


def equivalent_patterns(count: int) -> list[bytes]:
    """Patterns that all match `t/x/x/x/x/x/x/<n>`, most with the same meaning as others."""
    found = []
    for choice in itertools.product(["/", "."], repeat=7):
        for wildcard in "+*":
            for end in ("#", ">", "+", "*", "+/#", "*.>"):
                levels = ["t", wildcard, "x", "x", "x", "x", "x", end]
                text = "".join(map("".join, zip(levels, (*choice, ""), strict=True)))
                found.append(text.encode())
    return found[:count]


def test_equivalent_patterns_of_one_client_over_many_topics() -> None:
    """Once broken: 48 s when a client with 1,300 patterns left over 4,000 topics."""
    patterns = equivalent_patterns(sized(400, 1300))
    count = sized(1500, 4000)
    with bounded(CLIENT_SECONDS_MAX) as broker:
        create_topics(broker, (f"t/x/x/x/x/x/x/{number}" for number in range(count)))
        with lm.client(broker) as peer:
            subscribe_all(peer, patterns)
            peer.send(lm.push(0, b"t/x/x/x/x/x/x/7"))
            assert peer.forwarded().topic == b"t/x/x/x/x/x/x/7"


def overlapping_patterns() -> list[bytes]:
    """64 patterns, no two of which mean the same, that all match `t/x/x/x/x/x/<n>`."""
    choices = itertools.product([b"x", b"+"], repeat=6)
    return [b"/".join([b"t" if i % 2 else b"+", *each[1:], b"#"]) for i, each in enumerate(choices)]


def test_overlapping_patterns_and_topics_with_routes_of_their_own() -> None:
    """Each topic has a route, which 64 patterns and one of its own match; all are published to."""
    count = sized(1500, 10_000)
    topics = [b"t/x/x/x/x/x/%d" % number for number in range(count)]
    with bounded(CLIENT_SECONDS_MAX) as broker:
        create_topics(broker, (topic.decode() for topic in topics))
        with lm.client(broker) as one, lm.client(broker) as two, lm.client(broker) as publisher:
            subscribe_all(one, overlapping_patterns())
            subscribe_all(two, topics[: len(topics) - 100])
            publisher.send(b"".join(lm.push(n, topic) for n, topic in enumerate(topics)))
            assert publisher.receive(5 * count) == b"".join(lm.header(n, 0) for n in range(count))
            drain(one, two)


def drain(*peers: lm.LamaPeer) -> None:
    """Read what waits, so that closing does not wait for it."""
    for peer in peers:
        peer.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            while peer.socket.recv(1 << 20):
                pass


def test_more_shapes_of_patterns_than_allowed_are_refused() -> None:
    with bounded(CLIENT_SECONDS_MAX) as broker, lm.client(broker) as peer:
        for levels in range(64):
            peer.request(lm.subscribe(0, b"/".join([b"a"] * levels + [b"+"])))
        text = peer.request(lm.subscribe(0, b"/".join([b"a"] * 64 + [b"+"])), error=BAD_REQUEST)
        assert b"64 different places" in text
        peer.request(lm.subscribe(0, b"b/+"))  # of a shape that it has


def test_a_new_pattern_over_many_topics_and_a_message_meanwhile() -> None:
    """The subscription takes effect as a whole: nothing comes before its answer."""
    count = sized(20_000, 100_000)
    with bounded(CLIENT_SECONDS_MAX) as broker:
        create_topics(broker, (f"t/{number}" for number in range(count)))
        with lm.client(broker) as peer, lm.client(broker) as publisher:
            for number in range(5):
                peer.send(lm.subscribe(number, b"t/#" if number else b"#"))
                publisher.send(lm.push(number, b"t/%d" % (count - 1)))
            publisher.receive(25)
            answered = peer.receive(5)
            assert answered == lm.header(0, 0)


@pytest.mark.parametrize("pattern", [b"/+" * 31_000, b"/+/" + b"a" * 63_000])
def test_patterns_of_63_kilobytes(pattern: bytes) -> None:
    """Once broken: 6 s. Compiling one took tens of milliseconds."""
    rules = [Rule(allow=False, actions=frozenset(Action), pattern=f"x/{n}/#") for n in range(20)]
    options = GatewayOptions(anonymous=Principal("anyone", rules))
    count = sized(20, 200)
    with bounded(CLIENT_SECONDS_MAX, options=options) as broker, lm.client(broker) as peer:
        peer.send(b"".join(lm.subscribe(n, b"%d" % n + pattern) for n in range(count)))
        for number in range(count):
            peer.expect_answer(number, BAD_REQUEST)
        name = b"/".join([b"a"] * 31_000)
        peer.send(b"".join(lm.subscribe(n, b"%d/" % n + name) for n in range(count)))
        assert peer.receive(5 * count) == b"".join(lm.header(n, 0) for n in range(count))


def test_rules_that_change_for_clients_with_thousands_of_subscriptions() -> None:
    """All of them are checked again, and the clients with a forbidden one are disconnected."""
    denials = [Rule(allow=False, actions=frozenset(Action), pattern=f"x/{n}/#") for n in range(20)]
    principal = Principal("anyone", denials)
    patterns = [b"t/%d/t/t/t/t/t" % number for number in range(sized(6000, 9900))]
    with (
        bounded(CLIENT_SECONDS_MAX, options=GatewayOptions(anonymous=principal)) as broker,
        lm.client(broker) as one,
        lm.client(broker) as two,
    ):
        for peer in (one, two):
            subscribe_all(peer, patterns)
        one.request(lm.subscribe(0, b"secret"))
        denials.append(Rule(allow=False, actions=frozenset(Action), pattern="secret"))
        core = broker.server.broker

        def change() -> None:
            principal.set_rules(denials, default=True)
            core.rules_changed()

        broker.call(change)
        broker.until(lambda: not core.slices and len(core.sessions) == 1, seconds_max=30)
        two.request(lm.subscribe(0, b"public"))


# --- Lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/topics", "/clients"])
def test_a_crowd_that_asks_the_broker_for_lists(path: str) -> None:
    """Once broken: 4 to 10 s for 20 clients that ask for `/topics`."""
    rules = [Rule(allow=False, actions=frozenset(Action), pattern=f"x/{n}/#") for n in range(20)]
    options = GatewayOptions(anonymous=Principal("anyone", rules, administers=True))
    crowd, count = sized(10, 20), sized(3000, 20_000)
    with bounded(CLIENT_SECONDS_MAX, options=options) as broker:
        create_topics(broker, (f"list/of/topics/{number}" for number in range(count)))
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(FleximqPeer(broker.address)) for _ in range(crowd)]
            for peer in peers:
                for number in range(3):
                    peer.say(fx.REQ, fx.routing((1, path)), fx.request(f"q{number}"))
            for peer in peers:
                for number in range(3):
                    answer = peer.frame()
                    assert answer.header["status"] == 200
                    assert answer.header["reqrep"]["id"] == f"q{number}"


def test_a_list_of_services_each_of_which_has_many_servers() -> None:
    """Once broken: the servers of 200 services were looked at in one step."""
    rules = [Rule(allow=False, actions=frozenset(Action), pattern=f"x/{n}/#") for n in range(20)]
    servers, paths = sized(128, 256), 64
    options = GatewayOptions(anonymous=Principal("anyone", rules))
    with bounded(CLIENT_SECONDS_MAX, options=options) as broker:
        core = broker.server.broker
        encoding = Encoding(PROTOCOLS["fleximq"], "big")
        sessions = []
        for number in range(servers):
            principal = Principal(f"p{number}", rules)
            open_ = partial(core.open, encoding, RecordingLink(), principal=principal)
            sessions.append(broker.call(open_))
            for path in range(paths):
                broker.call(partial(core.services.register, sessions[-1], f"/path/{path}"))
        with FleximqPeer(broker.address) as peer:
            for number in range(5):
                peer.say(fx.REQ, fx.routing((1, "/services")), fx.request(f"q{number}"))
            for number in range(5):
                answer = peer.frame()
                assert answer.header["reqrep"]["id"] == f"q{number}"
                listed = msgspec.msgpack.decode(answer.payload)
                assert [each["servers"] for each in listed["services"]] == [servers] * paths
        for session in sessions:
            broker.call(partial(core.close, session))


def test_a_crowd_that_asks_for_lists_and_metrics_over_http() -> None:
    count = sized(3000, 100_000)
    with bounded(CROWD_SECONDS_MAX, http=True) as broker:
        assert isinstance(broker, HttpBroker)
        create_topics(broker, (f"list/of/topics/{number}" for number in range(count)))
        broker.get("/api/topics?limit=1")  # the first request loads the libraries
        paths = ["/api/topics?limit=1000", "/api/topics?prefix=none", "/api/clients", "/metrics"]
        threads = [
            threading.Thread(target=broker.get, args=(path,)) for path in paths for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


# --- Messages -------------------------------------------------------------------------------------


def test_many_new_topics_in_one_read() -> None:
    count = sized(6000, 60_000)
    with bounded(CLIENT_SECONDS_MAX) as broker, lm.client(broker) as peer:
        peer.send(b"".join(lm.push(n, b"new/%d" % n) for n in range(count)))
        peer.socket.settimeout(60)
        assert peer.receive(5 * count) == b"".join(lm.header(n, 0) for n in range(count))


def test_large_payloads_of_many_small_values() -> None:
    """Values are counted by a kernel, also in messages that no kernel scans."""
    for payload in (b"\xdd\x00\x0f\x00\x00" + b"\xc0" * 0xF0000, b"\xdd\x00\x0f\x00\x00" * 200_000):
        with bounded(CLIENT_SECONDS_MAX) as broker, FleximqPeer(broker.address) as peer:
            peer.say(fx.NOTIF, fx.routing((peer.number, "/x")), payload=payload)
            peer.say(fx.PUB, fx.topic("x"), payload=payload)
            while (found := peer.frame()).type != fx.PONG:
                assert found.type == fx.NOTIF
                if found.client_id == 1:
                    break
                peer.say(fx.PING, fx.keepalive(1))


def test_keys_of_messages_that_expire_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once broken: 1.2 s to forget 65,536 keys."""
    seconds = 600.0
    with (
        bounded(CLIENT_SECONDS_MAX, settings=BrokerSettings(dedupe_seconds=seconds)) as broker,
        FleximqPeer(broker.address) as peer,
    ):
        peer.socket.settimeout(60)
        count = sized(20_000, 65_000)
        for first in range(0, count, 500):
            headers = (
                {"topic": "t", "penstock-dedupe": f"k{number}"}
                for number in range(first, first + 500)
            )
            frames = (
                fx.frame(fx.PUB, peer.number, each, fx.pack(b"x"), reserved=bytes(16))
                for each in headers
            )
            peer.send(b"".join(frames))
        peer.settle()
        keys = broker.server.broker.deduplication
        assert broker.call(lambda: len(keys)) == count
        monkeypatch.setattr(keys, "_window_us", 0)
        monkeypatch.setattr(keys, "_sweep_at_us", 0)
        peer.say(fx.PUB, {"topic": "t", "penstock-dedupe": "last"}, payload=fx.pack(b"x"))
        peer.settle()
        ends = time.monotonic() + 30
        while broker.call(lambda: len(keys)) > 1 and time.monotonic() < ends:
            time.sleep(0.01)
        assert broker.call(lambda: len(keys)) <= 1


# --- Crowds ---------------------------------------------------------------------------------------


def test_a_crowd_that_leaves_at_once() -> None:
    crowd, count = sized(100, 400), sized(1000, 4000)
    with bounded(CROWD_SECONDS_MAX) as broker:
        create_topics(broker, (f"t/{number}/x" for number in range(count)))
        peers = []
        for number in range(crowd):
            peer = lm.client(broker, b"c%d" % number)
            subscribe_all(peer, [b"t/%d/#" % number, b"t/+/%d" % number, b"+/+/x"])
            peers.append(peer)
        for peer in peers:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for peer in peers:
            peer.socket.close()


def test_a_crowd_that_publishes_at_once() -> None:
    crowd, count = sized(20, 200), sized(2000, 5000)
    with bounded(CROWD_SECONDS_MAX) as broker, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(lm.client(broker, b"p%d" % n)) for n in range(crowd)]
        frames = [
            b"".join(lm.push(n, b"crowd/%d/%d" % (place, n)) for n in range(count))
            for place in range(crowd)
        ]
        threads = [
            threading.Thread(target=peer.send, args=(data,))
            for peer, data in zip(peers, frames, strict=True)
        ]
        for thread in threads:
            thread.start()
        answers = b"".join(lm.header(n, 0) for n in range(count))
        for peer in peers:
            peer.socket.settimeout(60)
            assert peer.receive(5 * count) == answers
        for thread in threads:
            thread.join()


def test_requests_of_a_crowd_to_a_client_that_leaves() -> None:
    crowd, count = sized(8, 60), 1000
    with bounded(CLIENT_SECONDS_MAX) as broker, contextlib.ExitStack() as stack:
        target = FleximqPeer(broker.address)
        peers = [stack.enter_context(FleximqPeer(broker.address)) for _ in range(crowd)]
        reader = threading.Thread(target=read_all, args=(target,))
        reader.start()
        for peer in peers:
            requests = (
                fx.frame(
                    fx.REQ,
                    peer.number,
                    fx.routing((target.number, "/x")) | fx.request(str(number)),
                )
                for number in range(count)
            )
            peer.send(b"".join(requests))
            peer.settle()
        target.socket.shutdown(socket.SHUT_RDWR)
        reader.join()
        target.socket.close()
        for peer in peers:
            for number in range(count):
                failure = peer.frame()
                assert failure.header["status"] == 600
                assert failure.header["reqrep"]["id"] == str(number)


def read_all(peer: FleximqPeer) -> None:
    peer.socket.settimeout(None)
    with contextlib.suppress(OSError):
        while peer.socket.recv(1 << 20):
            pass


@pytest.mark.parametrize("meanings", ["one", "many"])
def test_last_messages_beside_thousands_of_subscriptions(tmp_path: Path, meanings: str) -> None:
    """Once broken: seconds for each subscription to `@last`, to compile all other patterns."""
    count = sized(5000, 9900)
    if meanings == "one":
        choices = itertools.islice(itertools.product(b"/.", repeat=14), count)
        patterns = [b"t" + b"".join(b"%cx" % each for each in choice) + b"/#" for choice in choices]
    else:
        patterns = [b"%d/+" % number for number in range(count)]
    with (
        bounded(CLIENT_SECONDS_MAX, data=tmp_path) as broker,
        lm.client(broker) as publisher,
        lm.client(broker) as peer,
    ):
        publisher.request(lm.push(0, b"large"))  # so that offset 0 is of no other topic
        names = [b"t" + b"/x" * 14 + b"/%d" % number for number in range(sized(2000, 20_000))]
        for start in range(0, len(names), 200):
            some = names[start : start + 200]
            publisher.send(b"".join(lm.push(n, name) for n, name in enumerate(some)))
            publisher.receive(5 * len(some))
        for number in range(32):
            publisher.request(lm.push(number, b"large", bytes(1 << 20)))
        subscribe_all(peer, patterns)
        peer.send(lm.subscribe(1, b"large@earliest"))
        session = next(
            each
            for each in broker.call(lambda: list(broker.server.broker.sessions))
            if each.subscriptions
        )
        broker.until(lambda: session.link.congested)
        publisher.request(lm.push(1, b"large"))  # all subscriptions of the peer are behind now
        for _ in range(5):
            peer.send(lm.subscribe(2, b"#@last") + lm.unsubscribe(3, b"#"))
        peer.send(lm.subscribe(4, b"#@last"))
        slices = broker.server.broker.slices

        def is_collected() -> bool:
            (feed,) = session.feeds.values()
            return "#" in session.subscriptions and feed.position_of("#") > 0 and not slices

        broker.until(is_collected, seconds_max=90)
        peer.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("end", ["leaves", "is late"])
def test_a_member_of_many_groups_with_all_messages_that_it_may_have(
    tmp_path: Path, end: str
) -> None:
    groups, messages = sized(40, 150), GROUP_UNACKED_DEFAULT
    waits = GroupSettings(ack_wait_seconds=3600 if end == "leaves" else sized(5, 20))
    with (
        bounded(CLIENT_SECONDS_MAX, data=tmp_path, settings=BrokerSettings(groups=waits)) as broker,
        FleximqPeer(broker.address) as publisher,
        FleximqPeer(broker.address) as member,
    ):
        for each in (publisher, member):
            each.socket.settimeout(120)
        publish = fx.frame(
            fx.PUB, publisher.number, {"topic": "t"}, fx.pack(b"x"), reserved=bytes(16)
        )
        for _ in range(messages // 1024):
            publisher.send(publish * 1024)
            publisher.settle()
        reader = threading.Thread(target=_discard, args=(member.socket,), daemon=True)
        reader.start()
        for number in range(groups):
            member.say(fx.SUB, fx.topic(f"t@group=g{number},earliest"))
        core = broker.server.broker.groups
        assert core is not None

        def leased() -> int:
            return sum(group.ledger.leased for group in core._groups.values())

        broker.until(lambda: leased() == groups * messages, seconds_max=120)
        if end == "leaves":
            member.socket.shutdown(socket.SHUT_RDWR)
            broker.until(lambda: not core._groups, seconds_max=120)
        else:
            broker.until(lambda: leased() < groups * messages, seconds_max=120)
            member.socket.shutdown(socket.SHUT_RDWR)
            broker.until(lambda: not core._groups, seconds_max=120)
        reader.join()


def test_a_backlog_for_a_group_of_many_members(tmp_path: Path) -> None:
    """Once broken: each run was given out with a look at all members, without an end."""
    members = sized(200, 1000)
    settings = BrokerSettings(groups=GroupSettings(unacked_max=members))
    with (
        contextlib.ExitStack() as stack,
        bounded(CROWD_SECONDS_MAX, data=tmp_path, settings=settings) as broker,
        FleximqPeer(broker.address) as publisher,
    ):
        peers = [stack.enter_context(FleximqPeer(broker.address)) for _ in range(members)]
        for peer in peers:
            peer.say(fx.SUB, fx.topic("t@group=g"))
        core = broker.server.broker.groups
        assert core is not None
        broker.until(lambda: len(core.members("g")) == members, seconds_max=60)
        publisher.socket.settimeout(120)
        publish = fx.frame(
            fx.PUB, publisher.number, {"topic": "t"}, fx.pack(b"x"), reserved=bytes(16)
        )
        publisher.send(publish * members)
        publisher.settle()
        broker.until(lambda: all(held for _, held in core.members("g")), seconds_max=120)
        stack.close()


def _discard(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while link.recv(1 << 20):
            pass


def test_memory_is_not_counted_more_often_while_timers_are_due() -> None:
    """The loop ticks every millisecond then, and a count looks at many connections."""
    counts = 0
    with LiveBroker() as live:
        broker = live.server.broker
        tick = broker.memory.tick
        ends = time.monotonic() + 0.5

        def counted(now: float) -> None:
            nonlocal counts
            counts += 1
            tick(now)

        def slow_timer() -> None:
            time.sleep(0.002)
            if time.monotonic() < ends:
                broker.timers.after(0.0, slow_timer)

        def start() -> None:
            broker.memory.tick = counted  # type: ignore[method-assign]
            for _ in range(20):
                broker.timers.after(0.0, slow_timer)

        live.call(start)
        time.sleep(0.6)
    assert 2 <= counts <= 15
