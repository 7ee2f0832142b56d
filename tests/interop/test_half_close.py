"""Clients that send their last message, end, and wait for their answers: over real sockets."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.failing_log import FailingLog
from tests.support.live import LiveBroker, Peer
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, RHEOS2, SUBSCRIBE, SUCCESS, Client


@pytest.fixture
def log() -> FailingLog:
    return FailingLog()


@pytest.fixture
def broker(log: FailingLog) -> Iterator[LiveBroker]:
    with LiveBroker(writer=log) as live:
        yield live


def end(peer: Peer) -> None:
    peer.socket.shutdown(socket.SHUT_WR)


def settle(broker: LiveBroker, log: FailingLog, *, commits: int, safe: bool) -> None:
    """Wait until the log has been given so many commits, and say what becomes of them."""

    def work() -> bool:
        if log.last_commit < commits:
            return False
        if safe:
            log.written_commit = log.durable_commit = log.last_commit
        else:
            log.failed_commit = log.last_commit
        broker.server.broker.settle()
        return True

    broker.until(work)


def gone(broker: LiveBroker) -> None:
    """Wait until nobody is connected."""
    broker.until(lambda: len(broker.server.broker.sessions) == 0)


@pytest.mark.parametrize("outcome", ["safe", "lost"])
def test_who_ends_gets_its_answers_and_then_the_end(
    broker: LiveBroker, log: FailingLog, outcome: str
) -> None:
    with Client(broker, RHEOS2) as client:
        client.request(CREATE, b"a")
        settle(broker, log, commits=1, safe=True)
        assert client.ack().code == SUCCESS
        for _ in range(3):
            client.request(PUBLISH, b"a", b"last words")
        end(client)
        settle(broker, log, commits=2, safe=outcome == "safe")
        # Whether they came in one read or in several, no commit is left open.
        broker.until(lambda: log.next_offset == 3)
        settle(broker, log, commits=2, safe=outcome == "safe")
        expected = SUCCESS if outcome == "safe" else FAILED
        assert [client.ack().code for _ in range(3)] == [expected] * 3
        client.expect_close()
    gone(broker)


def test_a_push_before_the_end_is_answered(broker: LiveBroker, log: FailingLog) -> None:
    with lama.client(broker) as client:
        client.send(lama.push(5, b"a", b"last words"))
        end(client)
        settle(broker, log, commits=1, safe=True)
        client.expect(lama.answer(5))
        client.expect_close()
    gone(broker)


def test_a_failure_is_told_to_a_herald_client_that_has_ended(
    broker: LiveBroker, log: FailingLog
) -> None:
    with herald.publisher(broker) as client:
        client.send(herald.publish(7, b"last words"))
        end(client)
        settle(broker, log, commits=1, safe=False)
        client.expect(herald.error(4))
        client.expect_close()
    gone(broker)


def rheos_subscriber(broker: LiveBroker) -> Peer:
    client = Client(broker, RHEOS2)
    assert client.ask(SUBSCRIBE, b"#") == SUCCESS
    return client


def fleximq_subscriber(broker: LiveBroker) -> Peer:
    client = Peer(broker.address)
    client.send(fx.frame(fx.JOIN, 0))
    joined = fx.parse(client.receive(fx.FIXED_BYTES + len(fx.pack(fx.status(200)))))
    client.send(fx.frame(fx.SUB, joined.client_id, fx.topic("#")))
    return client


@pytest.mark.parametrize(
    "subscriber",
    [
        rheos_subscriber,
        fleximq_subscriber,
        lambda broker: lama.subscriber(broker, b"#"),
    ],
    ids=["rheos2", "fleximq", "lamamq"],
)
def test_a_subscriber_that_ends_is_closed(
    broker: LiveBroker, subscriber: Callable[[LiveBroker], Any]
) -> None:
    with subscriber(broker) as client:
        end(client)
        client.expect_close()
    gone(broker)


def test_who_ends_before_its_first_frame_is_whole_is_closed(broker: LiveBroker) -> None:
    with Peer(broker.address) as client:
        client.send(b"\xfa")
        end(client)
        client.expect_close()
    gone(broker)


def test_who_ends_and_goes_leaves_nothing_behind(broker: LiveBroker, log: FailingLog) -> None:
    with lama.client(broker) as client:
        client.send(lama.push(5, b"a", b"last words"))
        end(client)
        broker.until(lambda: log.last_commit == 1)
    settle(broker, log, commits=1, safe=True)
    gone(broker)
